// A chart of curves: zoom by dragging, with the wheel's button or with keys, and reset by a double click or Escape.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { Points, get, part, query } from "./api";
import { num } from "./format";

export interface Curve { run: string; name: string; label: string; dash?: number[] }
export interface Window { from?: number; to?: number }

const colors = ["#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2", "#be185d", "#65a30d"];
const darkColors = ["#60a5fa", "#fbbf24", "#34d399", "#f87171", "#a78bfa", "#22d3ee", "#f472b6", "#a3e635"];

// range of the y axis: not so small that its labels are all the same.
function range(_: uPlot, min: number | null, max: number | null): uPlot.Range.MinMax {
  if (min === null || max === null) return [0, 1];
  const least = 0.02 * Math.max(Math.abs(min), Math.abs(max)), missing = Math.max(0, least - (max - min)) / 2;
  return uPlot.rangeNum(min - missing, max + missing, 0.1, true);
}

// room is the width of an axis for its longest label: "10000 M" is wider than "0.1".
const room = (u: uPlot, labels: string[] | null): number => {
  if (!labels?.length) return 52;
  u.ctx.save();
  u.ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  const widest = Math.max(...labels.map((l) => u.ctx.measureText(l).width)) / devicePixelRatio;
  u.ctx.restore();
  return Math.max(52, Math.ceil(widest) + 20);
};

// sparse says that a curve has so few points that each is marked: one alone has no line.
const sparse = (u: uPlot, i: number): boolean => Array.from(u.data[i] as ArrayLike<number | null>).filter((v) => v != null).length < 25;

// wholes are the distances of marks on an axis of steps.
const wholes = [1, 2, 5].flatMap((n) => [...Array(10).keys()].map((e) => n * 10 ** e)).sort((a, b) => a - b);

// whole is the range of the x axis: what the data have.
const whole = (_: uPlot, min: number | null, max: number | null): uPlot.Range.MinMax => min === null || max === null ? [0, 1] : [min, max];

// beside is what an axis shows on both sides of one value alone, in steps or seconds: uPlot would show three years.
const beside = { step: 1, time: 30 };

export function useDark(): boolean {
  const media = matchMedia("(prefers-color-scheme: dark)");
  const [dark, set] = useState(media.matches);
  useEffect(() => {
    const changed = () => set(media.matches);
    media.addEventListener("change", changed);
    return () => media.removeEventListener("change", changed);
  }, []);
  return dark;
}

interface Props { title: string; curves: Curve[]; smooth?: number; x?: "step" | "time"; window: Window; onWindow: (w: Window) => void; again: unknown; height?: number; plain?: boolean }

export function Chart({ title, curves, smooth = 0, x = "step", window, onWindow, again, height = 180, plain = false }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>();
  const [data, setData] = useState<Points[]>([]);
  const [error, setError] = useState("");
  const dark = useDark();
  const key = JSON.stringify([curves, smooth, x, window]);

  useEffect(() => {
    const aborter = new AbortController();
    const runs = [...new Set(curves.map((c) => c.run))];
    const points = Math.min(2000, Math.max(200, 2 * (box.current?.clientWidth ?? 400)));
    Promise.all(runs.map((run) => get<Record<string, Points>>(
      `runs/${part(run)}/series?` + query({ points, smooth: smooth || undefined, x, from: window.from, to: window.to },
        curves.filter((c) => c.run === run).map((c) => c.name)), aborter.signal)))
      .then((answers) => {
        setData(curves.map((c) => answers[runs.indexOf(c.run)][c.name] ?? { x: [], y: [], n: 0 }));
        setError("");
      }, (e) => { if (!aborter.signal.aborted) setError(String(e.message ?? e)); });
    return () => aborter.abort();
  }, [key, again]);

  useEffect(() => { // a new plot when its shape changes, new data otherwise
    const element = box.current;
    if (!element) return;
    const list = dark ? darkColors : colors;
    const ink = dark ? "#a8b3c2" : "#4b5563", grid = { stroke: dark ? "#ffffff14" : "#00000012", width: 1 };
    const axis = { stroke: ink, grid, ticks: grid, font: "11px system-ui, sans-serif" };
    const u = new uPlot({
      width: element.clientWidth || 300, height,
      legend: { show: false },
      cursor: { points: { size: 6 }, drag: { x: true, y: false, setScale: false }, focus: { prox: 20 } },
      scales: { x: { time: x === "time", range: whole }, y: { range } },
      axes: [{ ...axis, size: 28, ...(x === "step" && { incrs: wholes, values: (_: uPlot, v: number[]) => v.map((t) => num(t)) }) }, { ...axis, size: room, values: (_, v) => v.map((t) => num(t)) }],
      series: [{}, ...curves.map((c, i) => ({ label: c.label, stroke: list[i % list.length], width: 1.5, dash: c.dash, spanGaps: true, points: { show: sparse, size: 5 } }))],
      hooks: { setSelect: [(u) => {
        if (u.select.width > 4) onWindow({ from: u.posToVal(u.select.left, "x"), to: u.posToVal(u.select.left + u.select.width, "x") });
        u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      }] },
    }, [[]] as unknown as uPlot.AlignedData, element);
    u.over.addEventListener("dblclick", () => onWindow({}));
    const resized = new ResizeObserver(() => { if (element.clientWidth) u.setSize({ width: element.clientWidth, height }); });
    resized.observe(element);
    plot.current = u;
    return () => { resized.disconnect(); u.destroy(); plot.current = undefined; };
  }, [JSON.stringify(curves), dark, x, height]);

  useEffect(() => {
    if (!plot.current || data.length !== curves.length) return;
    const tables = data.map((p) => [p.x, p.y] as unknown as uPlot.AlignedData);
    const joined = tables.length === 1 ? tables[0] : tables.length ? uPlot.join(tables) : ([[]] as unknown as uPlot.AlignedData);
    plot.current.setData(joined, true);
    if (window.from !== undefined && window.to !== undefined) plot.current.setScale("x", { min: window.from, max: window.to });
    else if (joined[0].length === 1) plot.current.setScale("x", { min: joined[0][0] - beside[x], max: joined[0][0] + beside[x] });
  }, [data, dark, x, JSON.stringify(curves)]);

  const keys = (e: KeyboardEvent) => {
    const xs = plot.current?.scales.x;
    if (xs?.min == null || xs.max == null) return;
    const width = xs.max - xs.min;
    const moves: Record<string, Window> = {
      "+": { from: xs.min + width / 4, to: xs.max - width / 4 }, "-": { from: xs.min - width / 2, to: xs.max + width / 2 },
      ArrowLeft: { from: xs.min - width / 4, to: xs.max - width / 4 }, ArrowRight: { from: xs.min + width / 4, to: xs.max + width / 4 }, Escape: {},
    };
    if (moves[e.key]) { e.preventDefault(); onWindow(moves[e.key]); }
  };
  const last = (i: number) => data[i]?.last;
  const list = dark ? darkColors : colors;
  const said = curves.map((c, i) => `${c.label}: ${num(last(i))}`).join(", ");
  return (
    <figure class="chart">
      <figcaption>
        <strong>{title}</strong>
        <span class="legend">
          {curves.slice(0, 12).map((c, i) => <span key={c.run + c.name}><i class="swatch" style={{ background: list[i % list.length] }} />{curves.length > 1 || !plain ? c.label : ""} <b>{num(last(i))}</b></span>)}
          {curves.length > 12 && <span>and {curves.length - 12} more</span>}
        </span>
      </figcaption>
      {error && <p class="error" role="alert">{error}</p>}
      <div class="plot" ref={box} tabIndex={0} role="img" onKeyDown={keys}
        aria-label={`${title}. Newest values: ${said}. Keys: plus and minus zoom, arrows move, Escape shows all.`} />
    </figure>
  );
}
