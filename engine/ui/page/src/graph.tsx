// The blocks as columns, each to the right of what it needs, with lines between them.
import { Block, Summary } from "./api";
import { clock, num } from "./format";
import { Route, link } from "./route";

const width = 230, height = 94, gapX = 56, gapY = 18;

function columns(blocks: Block[]): Map<string, number> {
  const at = new Map<string, number>(), known = new Map(blocks.map((b) => [b.address, b]));
  const place = (b: Block, path: string[]): number => {
    const have = at.get(b.address);
    if (have !== undefined) return have;
    let column = 0;
    for (const n of b.needs) {
      const on = known.get(n);
      if (on && !path.includes(n)) column = Math.max(column, place(on, [...path, b.address]) + 1);
    }
    at.set(b.address, column);
    return column;
  };
  for (const b of blocks) place(b, []);
  return at;
}

function fact(b: Block): string {
  if (b.total) return `${num(b.step)} of ${num(b.total)} ${b.unit ?? ""}`;
  if (b.kind === "environment" && b.metrics.reward != null) return `reward ${num(b.metrics.reward)}`;
  if (b.version) return `policy version ${b.version}`;
  return "";
}

// silence stands in place of numbers that are old.
function silence(b: Block): string {
  return b.silent_since ? `no answer since ${clock(b.silent_since)}` : "";
}

export function Graph({ s, route }: { s: Summary; route: Route }) {
  const column = columns(s.blocks), rows = new Map<number, number>(), place = new Map<string, { x: number; y: number }>();
  for (const b of s.blocks) {
    const c = column.get(b.address)!, r = rows.get(c) ?? 0;
    rows.set(c, r + 1);
    place.set(b.address, { x: c * (width + gapX), y: r * (height + gapY) });
  }
  const w = Math.max(1, ...[...place.values()].map((p) => p.x + width)), h = Math.max(1, ...[...place.values()].map((p) => p.y + height));
  return (
    <div class="scroll graph" tabIndex={0} role="region" aria-label="Graph of the blocks">
      <div class="canvas" style={{ width: w + "px", height: h + "px" }}>
        <svg width={w} height={h} aria-hidden="true">
          {s.blocks.flatMap((b) => b.needs.filter((n) => place.has(n)).map((n) => {
            const a = place.get(n)!, z = place.get(b.address)!, x = a.x + width, y1 = a.y + height / 2, y2 = z.y + height / 2, mid = z.x - gapX / 2;
            return <path key={n + b.address} d={`M${x} ${y1} L${mid - 10} ${y1} Q${mid} ${y1} ${mid} ${y1 + Math.sign(y2 - y1) * Math.min(10, Math.abs(y2 - y1))} L${mid} ${y2} L${z.x} ${y2}`} />;
          }))}
        </svg>
        {s.blocks.map((b) => {
          const p = place.get(b.address)!, [kind, plugin, ...name] = b.address.split(".");
          return (
            <a key={b.address} class={"block " + (b.silent_since ? "silent" : b.phase)} href={link(route.run, "logs", [], { address: b.address })} style={{ left: p.x + "px", top: p.y + "px", width: width + "px", height: height + "px" }}
              title={[b.address, silence(b), b.message, b.doing].filter(Boolean).join("; ")}>
              <b>{name.join(".")}</b> <span class="muted">{kind} {plugin}</span>
              <span class="phase"><i class="dot" />{b.phase}{b.restarts ? `, ${b.restarts} restarts` : ""}{b.phase === "ready" && b.doing && (fact(b) || b.message) ? `: ${b.doing}` : ""}</span>
              <span class="fact">{silence(b) || fact(b) || b.message || b.doing}</span>
            </a>
          );
        })}
      </div>
    </div>
  );
}
