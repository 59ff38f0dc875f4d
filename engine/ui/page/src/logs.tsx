import { LogLine, Summary, part, query, useGet } from "./api";
import { clock, short } from "./format";
import { Route, change } from "./route";

export function Logs({ s, route, again }: { s: Summary; route: Route; again: number }) {
  const q = route.q, address = q.get("address") ?? "", level = q.get("level") ?? "info", grep = q.get("grep") ?? "", before = q.get("before") ?? "";
  const { value: lines, error } = useGet<LogLine[]>(`runs/${part(s.name)}/logs?` + query({ address, level, grep, before, limit: 500 }), before ? 0 : again);
  const block = s.blocks.find((b) => b.address === address);
  return (
    <>
      <h1 class="sr">Logs</h1>
      <form class="controls" onSubmit={(e) => e.preventDefault()}>
        <label>Block <select value={address} onChange={(e) => change(route, { address: e.currentTarget.value, before: "" })}><option value="">all</option>{s.blocks.map((b) => <option key={b.address}>{b.address}</option>)}</select></label>
        <label>At least <select value={level} onChange={(e) => change(route, { level: e.currentTarget.value, before: "" })}>{["debug", "info", "warn", "error"].map((l) => <option key={l}>{l}</option>)}</select></label>
        <label>Contains <input type="search" value={grep} onInput={(e) => change(route, { grep: e.currentTarget.value, before: "" })} /></label>
      </form>
      {block && <p class="muted">{block.phase}{block.message && `: ${block.message}`}{block.remedy && ` → ${block.remedy}`}</p>}
      {error && <p class="error" role="alert">{error}</p>}
      {lines?.length === 0 && <p class="muted">No line matches.</p>}
      <ol class="log">{lines?.map((l) => <li key={l.seq} class={l.level}><time dateTime={l.time}>{clock(l.time)}</time> {l.address && <b title={l.address}>{short(l.address)}</b>} <span>{l.text}{l.repeats ? <i class="muted"> (and {l.repeats} similar before)</i> : null}</span></li>)}</ol>
      {lines && lines.length === 500 && <p class="controls"><button type="button" onClick={() => change(route, { before: String(lines.at(-1)!.seq) })}>Older lines</button></p>}
    </>
  );
}
