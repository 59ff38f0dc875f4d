import { useEffect, useRef, useState } from "preact/hooks";
import { Span, Summary, Timeline, part, query, useGet } from "./api";
import { Chart, useDark, Window } from "./chart";
import { clock, short, span } from "./format";

const light: Record<string, string> = { inference: "#0891b2", trainer: "#7c3aed", environment: "#65a30d", work: "#2563eb", wait: "#cbd5e1", rest: "#eef2f7", sync: "#d97706", ready: "#a7f3d0", starting: "#fde68a", loading: "#fcd34d", preparing: "#fde68a", prepared: "#fef3c7", pending: "#e5e7eb", degraded: "#fdba74", draining: "#ddd6fe", completed: "#86efac", stopped: "#e5e7eb", failed: "#fca5a5" };
const dark_: Record<string, string> = { inference: "#0e7490", trainer: "#7c3aed", environment: "#4d7c0f", work: "#3b82f6", wait: "#64748b", rest: "#2b3544", sync: "#d97706", ready: "#065f46", starting: "#854d0e", loading: "#a16207", preparing: "#854d0e", prepared: "#713f12", pending: "#1f2937", degraded: "#9a3412", draining: "#4c1d95", completed: "#166534", stopped: "#1f2937", failed: "#991b1b" };
// machine are charts of how far machines were used, by the names of the metrics: the engine's, and with host and block
// those of jobs.
const machine: [string, RegExp][] = [
  ["Processors and GPUs busy (part of the time)", /^machine (\S+ \S+ )?(cpu|gpu\/\d+\/utilization)$/],
  ["Memory of machines (bytes)", /^machine (\S+ \S+ )?memory(_used)?_bytes$/],
  ["Memory of GPUs (bytes)", /^machine (\S+ \S+ )?gpu\/\d+\/memory_used_bytes$/],
  ["Power of GPUs (W)", /^machine (\S+ \S+ )?gpu\/\d+\/power_watts$/],
  ["Temperature of GPUs (°C)", /^machine (\S+ \S+ )?gpu\/\d+\/temperature_celsius$/],
];
const rowHeight = 26, top = 22;

// Lanes shows who did what when, drawn on a canvas: a lane can have thousands of spans.
export function Lanes({ s, again }: { s: Summary; again: number }) {
  const box = useRef<HTMLDivElement>(null), canvas = useRef<HTMLCanvasElement>(null), dark = useDark();
  const [window, setWindow] = useState<Window>({}), [width, setWidth] = useState(800), [over, setOver] = useState<{ lane: string; span: Span }>();
  const drag = useRef<number>();
  const { value: t, error } = useGet<Timeline>(`runs/${part(s.name)}/timeline?` + query({ ...window, points: width }), window.to ? 0 : again);
  useEffect(() => {
    if (!box.current) return;
    const o = new ResizeObserver(() => setWidth(Math.max(200, box.current!.clientWidth)));
    o.observe(box.current);
    return () => o.disconnect();
  }, []);
  const names = width < 600 ? 0 : 190;
  const x = (at: number) => names + ((at - t!.from) / (t!.to - t!.from || 1)) * (width - names);
  const at = (px: number) => t!.from + ((px - names) / (width - names)) * (t!.to - t!.from);
  useEffect(() => {
    const c = canvas.current;
    if (!c || !t) return;
    const ratio = devicePixelRatio || 1, height = top + t.lanes.length * rowHeight;
    c.width = width * ratio; c.height = height * ratio;
    c.style.width = width + "px"; c.style.height = height + "px";
    const g = c.getContext("2d")!, palette = dark ? dark_ : light, ink = dark ? "#cbd5e1" : "#334155";
    g.scale(ratio, ratio);
    g.clearRect(0, 0, width, height);
    g.font = "11px system-ui, sans-serif"; g.textBaseline = "middle"; g.fillStyle = ink;
    const ticks = Math.max(2, Math.floor((width - names) / 110));
    for (let i = 0; i < ticks; i++) {
      const when = t.from + ((t.to - t.from) * i) / ticks;
      g.fillText(clock(when), x(when), 8);
    }
    t.lanes.forEach((lane, i) => {
      const y = top + i * rowHeight;
      for (const p of lane.spans) {
        const from = Math.max(names, x(p.from)), to = Math.min(width, x(p.to));
        g.fillStyle = palette[p.what] ?? (dark ? "#475569" : "#cbd5e1");
        g.fillRect(from, y, Math.max(1, to - from), rowHeight - 6);
      }
      g.fillStyle = ink;
      if (names) g.fillText(label(lane), 0, y + (rowHeight - 6) / 2, names - 8);
      else g.fillText(label(lane), 4, y + (rowHeight - 6) / 2);
    });
    g.fillStyle = dark ? "#f87171" : "#b91c1c";
    for (const m of t.marks) if (m.what !== "checkpoint") g.fillRect(x(m.from), top, 1.5, height - top);
    g.fillStyle = dark ? "#e2e8f0" : "#0f172a";
    for (const m of t.marks) if (m.what === "checkpoint") g.fillRect(x(m.from), top, 1, height - top);
  }, [t, width, dark]);
  const find = (e: MouseEvent) => {
    const r = canvas.current!.getBoundingClientRect(), i = Math.floor((e.clientY - r.top - top) / rowHeight), lane = t?.lanes[i], when = t ? at(e.clientX - r.left) : 0;
    const hit = lane?.spans.findLast((p) => p.from <= when && when <= p.to);
    setOver(hit && lane ? { lane: lane.name, span: hit } : undefined);
  };
  const zoom = (by: number, move = 0) => {
    if (!t) return;
    const middle = (t.from + t.to) / 2 + (move * (t.to - t.from)) / 4, half = ((t.to - t.from) / 2) * by;
    const from = Math.max(t.start, middle - half), to = Math.min(t.end, middle + half);
    setWindow(from <= t.start && to >= t.end ? {} : { from, to });
  };
  return (
    <>
      <h1 class="sr">Timeline</h1>
      {error && <p class="error" role="alert">{error}</p>}
      <p class="controls">
        <button type="button" onClick={() => zoom(0.5)}>Zoom in</button><button type="button" onClick={() => zoom(2)}>Zoom out</button>
        <button type="button" onClick={() => zoom(1, -1)}>Earlier</button><button type="button" onClick={() => zoom(1, 1)}>Later</button>
        <button type="button" onClick={() => setWindow({})}>All</button>
        <span class="legend">{drawn(t).map((k) => <span key={k}><i class="swatch" style={{ background: (dark ? dark_ : light)[k] }} />{k}</span>)}</span>
      </p>
      <div ref={box}>
        <canvas ref={canvas} role="img" aria-label={`Timeline of ${t?.lanes.length ?? 0} lanes; the table below says the same`}
          onMouseMove={find} onMouseDown={(e) => { drag.current = e.offsetX; }}
          onMouseUp={(e) => {
            if (drag.current !== undefined && t && Math.abs(e.offsetX - drag.current) > 5) {
              const [a, b] = [drag.current, e.offsetX].sort((p, q) => p - q);
              setWindow({ from: at(a), to: at(b) });
            }
            drag.current = undefined;
          }} onDblClick={() => setWindow({})} />
      </div>
      <p class="token" role="status">{over ? `${over.lane}: ${over.span.label}, ${clock(over.span.from)}, ${span(over.span.to - over.span.from)}` : "Drag to zoom; a double click shows all. Red lines are restarts and stalls, " + (dark ? "light" : "dark") + " ones checkpoints."}</p>
      {t && <details><summary>Shares of the time shown</summary>
        <div class="scroll" tabIndex={0} role="region" aria-label="Shares"><table><thead><tr><th>Lane</th><th>Shares</th></tr></thead><tbody>
          {t.lanes.map((l) => <tr key={l.name + (l.block ?? "")}><td>{l.name}{l.block && `, ${l.block}`}</td><td>{shares(l.spans, t)}</td></tr>)}</tbody></table></div></details>}
      <div class="charts">{machine.map(([title, wanted]) => {
        const curves = s.metrics.filter((m) => wanted.test(m.name)).map((m) => ({ run: s.name, name: m.name, label: m.name.slice("machine ".length).replaceAll("_", " ") }));
        return curves.length > 0 && <Chart key={title} title={title} curves={curves} x="time" window={window} onWindow={setWindow} again={again} />;
      })}</div>
    </>
  );
}

// drawn are the kinds of span in sight, in the order of the palette.
function drawn(t?: Timeline): string[] {
  const seen = new Set(t?.lanes.flatMap((l) => l.spans.map((p) => p.what)));
  return Object.keys(light).filter((k) => seen.has(k));
}

// label names a lane: the block with its GPUs, or what of the block below it the lane shows.
function label(lane: Timeline["lanes"][0]): string {
  if (lane.name.startsWith("GPU ")) return lane.name + (lane.block ? `, ${short(lane.block)}` : "");
  const [address, what] = lane.name.split(" ");
  return what ? "  " + what : short(address) + (lane.devices?.length ? ` (GPU ${lane.devices.join(", ")})` : "");
}

function shares(spans: Span[], t: Timeline): string {
  const sums = new Map<string, number>();
  for (const p of spans) sums.set(p.what, (sums.get(p.what) ?? 0) + Math.max(0, Math.min(p.to, t.to) - Math.max(p.from, t.from)));
  return [...sums].sort((a, b) => b[1] - a[1]).map(([k, v]) => `${k} ${((100 * v) / (t.to - t.from || 1)).toFixed(0)} %`).join(", ");
}
