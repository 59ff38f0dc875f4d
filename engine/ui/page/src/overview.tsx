import { useState } from "preact/hooks";
import { GroupList, LogLine, Summary, part, useGet } from "./api";
import { Chart, Window } from "./chart";
import { charts } from "./curves";
import { clock, num, short, span } from "./format";
import { Graph } from "./graph";
import { Route, link } from "./route";
import { Shown } from "./samples";

// Overview: health first, then what is learned, then what was said.
export function Overview({ s, route, again }: { s: Summary; route: Route; again: number }) {
  const [window, setWindow] = useState<Window>({});
  const samples = useGet<GroupList>(`runs/${part(s.name)}/samples?limit=4`, again);
  const logs = useGet<LogLine[]>(`runs/${part(s.name)}/logs?limit=8&level=info`, again);
  const job = s.blocks.find((b) => b.kind === "trainer");
  const took = s.started ? ((s.ended ? Date.parse(s.ended) : Date.parse(s.now)) - Date.parse(s.started)) / 1000 : 0;
  const main = charts(s).slice(0, 3);
  const find = (...names: string[]) => { for (const n of names) { const v = job?.metrics[n]; if (v !== undefined && v !== null) return v; } return undefined; };
  return (
    <>
      {s.status === "paused" && <p class="warn" role="status">The run is paused: recipe resume continues it.</p>}
      {s.message && <p class={s.status === "failed" ? "error" : "note"}>{s.message}</p>}
      {s.stalls.map((x) => <p key={x.address} class="warn" role="status"><b>No progress for {span(x.seconds)}:</b> {x.message}{x.remedy && <> → {x.remedy}</>}</p>)}
      {s.blocks.filter((b) => b.silent_since).map((b) => <p key={b.address} class="warn" role="status"><b>{b.address}: its process has not answered for {span((Date.parse(s.now) - Date.parse(b.silent_since!)) / 1000)}.</b> Its metrics are old.</p>)}
      {s.blocks.filter((b) => b.phase === "failed").map((b) => <p key={b.address} class="error"><b>{b.address} failed:</b> {b.message}{b.remedy && <> → {b.remedy}</>}</p>)}
      {job?.total ? (
        <div class="progress">
          <progress max={job.total} value={job.step ?? 0} aria-label={`${job.step} of ${job.total} ${job.unit}`} />
          <span>{num(job.step)} of {num(job.total)} {job.unit}{s.status === "running" && job.left !== undefined && <>, about {span(job.left)} left</>}</span>
        </div>
      ) : null}
      <dl class="tiles">
        <Tile name="Reward" value={num(find("reward", "reward/mean", "scores/mean"))} />
        <Tile name="Policy version" value={num(s.version)} />
        <Tile name="Staleness" value={num(find("staleness", "staleness/mean"))} />
        <Tile name="Tokens a second" value={num(find("tokens_per_second", "tokens/per_second"))} />
        <Tile name="Samples" value={num(s.samples)} />
        <Tile name={s.ended ? "Took" : "Runs for"} value={span(took)} />
      </dl>
      <div class="charts">{main.map((c) => <Chart key={c.title} smooth={0.6} {...c} window={window} onWindow={setWindow} again={again} />)}</div>
      <h2>Blocks</h2>
      <Graph s={s} route={route} />
      <h2>Newest samples</h2>
      {samples.value?.groups.length === 0 && <p class="muted">None were recorded yet.</p>}
      <ul class="samples">{samples.value?.groups.map((g) => (
        <li key={g.block + g.id}><a href={link(s.name, "samples", [g.block, g.id])}><span class="score">{num(g.mean)}</span>
          <span class="texts"><Shown text={g.prompt} /> <span aria-hidden="true">→</span> <Shown text={g.best} /></span></a></li>))}
      </ul>
      <h2>Log</h2>
      <ol class="log">{logs.value?.map((l) => <li key={l.seq} class={l.level}><time>{clock(l.time)}</time> {l.address && <b>{short(l.address)}</b>} <span>{l.text}</span></li>)}</ol>
    </>
  );
}

function Tile({ name, value }: { name: string; value: string }) {
  return <div><dt>{name}</dt><dd>{value}</dd></div>;
}
