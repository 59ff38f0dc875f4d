// A chart of curves: zoom by dragging, with the wheel's button or with keys, and reset by a double click or Escape.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { Points, get, part, query } from "./api";
import { num } from "./format";

// Curve is a metric of a run. low and high are the metrics of the ends of its interval, drawn as a band.
export interface Curve { run: string; name: string; label: string; dash?: number[]; low?: string; high?: string }
// Mark is a step that a line marks.
export interface Mark { step: number; label: string }
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

// names are the metrics that a curve needs.
const names = (c: Curve): string[] => [c.name, ...(c.low && c.high ? [c.low, c.high] : [])];

// stack is curves, each on top of those before it. A curve has no value at a step at which another one has: it counts as 0.
function stack(tables: uPlot.AlignedData): uPlot.AlignedData {
  const [x, ...ys] = tables;
  const sums = new Array<number>(x.length).fill(0);
  return [x, ...ys.map((y) => { for (let i = 0; i < sums.length; i++) sums[i] += y[i] ?? 0; return [...sums]; })] as uPlot.AlignedData;
}

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

interface Props { title: string; curves: Curve[]; smooth?: number; x?: "step" | "time"; window: Window; onWindow: (w: Window) => void; again: unknown; height?: number; plain?: boolean; stacked?: boolean; mark?: Mark }

export function Chart({ title, curves, smooth = 0, x = "step", window, onWindow, again, height = 180, plain = false, stacked = false, mark }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>();
  const [data, setData] = useState<Points[]>([]);
  const [error, setError] = useState("");
  const dark = useDark();
  const key = JSON.stringify([curves, smooth, x, window]);
  const total = curves.reduce((n, c) => n + names(c).length, 0);
  const first = curves.map((_, i) => 1 + curves.slice(0, i).reduce((n, c) => n + names(c).length, 0)); // its row of the data

  useEffect(() => {
    const aborter = new AbortController();
    const runs = [...new Set(curves.map((c) => c.run))];
    const points = Math.min(2000, Math.max(200, 2 * (box.current?.clientWidth ?? 400)));
    Promise.all(runs.map((run) => get<Record<string, Points>>(
      `runs/${part(run)}/series?` + query({ points, smooth: smooth || undefined, x, from: window.from, to: window.to },
        curves.filter((c) => c.run === run).flatMap(names)), aborter.signal)))
      .then((answers) => {
        setData(curves.flatMap((c) => names(c).map((n) => answers[runs.indexOf(c.run)][n] ?? { x: [], y: [], n: 0 })));
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
      series: [{}, ...curves.flatMap((c, i) => {
        const stroke = list[i % list.length];
        const line = { label: c.label, stroke, width: 1.5, dash: c.dash, spanGaps: true, points: { show: !stacked && sparse, size: 5 }, ...(stacked && i === 0 && { fill: stroke + "66", fillTo: 0 }) };
        return [line, ...names(c).slice(1).map((label) => ({ label, stroke: "transparent", spanGaps: true, points: { show: false } }))];
      })],
      bands: [
        ...curves.flatMap((c, i) => names(c).length > 1 ? [{ series: [first[i] + 2, first[i] + 1] as uPlot.Band.Bounds, fill: list[i % list.length] + "2e" }] : []),
        ...(stacked ? curves.slice(1).map((_, i) => ({ series: [i + 2, i + 1] as uPlot.Band.Bounds, fill: list[(i + 1) % list.length] + "66" })) : []),
      ],
      hooks: { drawAxes: [(u) => {
        if (!mark || x !== "step" || u.scales.x.min == null || mark.step < u.scales.x.min || mark.step > u.scales.x.max!) return;
        const at = u.valToPos(mark.step, "x", true);
        u.ctx.save();
        u.ctx.strokeStyle = ink; u.ctx.lineWidth = devicePixelRatio; u.ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
        u.ctx.beginPath(); u.ctx.moveTo(at, u.bbox.top); u.ctx.lineTo(at, u.bbox.top + u.bbox.height); u.ctx.stroke();
        u.ctx.restore();
      }], setSelect: [(u) => {
        if (u.select.width > 4) onWindow({ from: u.posToVal(u.select.left, "x"), to: u.posToVal(u.select.left + u.select.width, "x") });
        u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      }] },
    }, [[]] as unknown as uPlot.AlignedData, element);
    u.over.addEventListener("dblclick", () => onWindow({}));
    const resized = new ResizeObserver(() => { if (element.clientWidth) u.setSize({ width: element.clientWidth, height }); });
    resized.observe(element);
    plot.current = u;
    return () => { resized.disconnect(); u.destroy(); plot.current = undefined; };
  }, [JSON.stringify(curves), dark, x, height, stacked, mark?.step]);

  useEffect(() => {
    if (!plot.current || data.length !== total) return;
    const tables = data.map((p) => [p.x, p.y] as unknown as uPlot.AlignedData);
    const joined = tables.length === 1 ? tables[0] : tables.length ? uPlot.join(tables) : ([[]] as unknown as uPlot.AlignedData);
    plot.current.setData(stacked ? stack(joined) : joined, true);
    if (window.from !== undefined && window.to !== undefined) plot.current.setScale("x", { min: window.from, max: window.to });
    else if (joined[0].length === 1) plot.current.setScale("x", { min: joined[0][0] - beside[x], max: joined[0][0] + beside[x] });
  }, [data, dark, x, JSON.stringify(curves), stacked, mark?.step]);

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
  const last = (i: number) => data[first[i] - 1]?.last;
  const list = dark ? darkColors : colors;
  const said = curves.map((c, i) => `${c.label}: ${num(last(i))}`).join(", ");
  return (
    <figure class="chart">
      <figcaption>
        <strong>{title}</strong>
        <span class="legend">
          {curves.slice(0, 12).map((c, i) => <span key={c.run + c.name}><i class="swatch" style={{ background: list[i % list.length] }} />{curves.length > 1 || !plain ? c.label : ""} <b>{num(last(i))}</b></span>)}
          {curves.length > 12 && <span>and {curves.length - 12} more</span>}
          {mark && <span>{mark.label}</span>}
        </span>
      </figcaption>
      {error && <p class="error" role="alert">{error}</p>}
      <div class="plot" ref={box} tabIndex={0} role="img" onKeyDown={keys}
        aria-label={`${title}. Newest values: ${said}. ${mark ? mark.label + ". " : ""}Keys: plus and minus zoom, arrows move, Escape shows all.`} />
    </figure>
  );
}
