import { useMemo, useState } from "preact/hooks";
import { RunRow, Summary, part, useAll } from "./api";
import { Chart, Curve, Mark, Window } from "./chart";
import { short } from "./format";
import { Route, change } from "./route";

// solveRates are the numbers of tasks by solve rate, the hardest first, of one environment each.
const solveRates = "Tasks by solve rate", difficulties = ["unsolved", "hard", "target", "easy", "solved"];

// topics are the charts that are put together from metrics of several plugins, by the names of those metrics.
const topics: [string, RegExp][] = [
  ["Reward", /^(reward|reward\/mean|scores\/mean)$/],
  ["Evaluation", /^eval\/(?!policy_version$).*$/],
  ["Held-out tasks", /^evaluation\/[^/]+\/pass@\d+$/],
  ["Loss", /^(loss|policy_loss|loss\/(?!.*(min|max)).*)$/],
  ["KL divergence", /^(kl|policy_kl|kl\/(?!.*coefficient).*|mismatch\/.*kl)$/],
  ["Throughput (tokens a second)", /^(tokens_per_second|tokens\/per_second)$/],
  ["Entropy", /^(entropy|entropy\/mean)$/],
  ["Gradient norm", /^grad_norm$/],
  ["Length (tokens)", /^(completion_tokens|length\/(mean|response_mean)|response_length.*|tokens\/per_completion)$/],
  ["Staleness (policy versions)", /^(staleness|staleness_max|staleness\/(mean|max))$/],
  ["Seconds a step", /^(seconds_waiting|seconds_training|seconds_syncing|time\/.*)$/],
  ["Weight sync (seconds)", /^(seconds|sync_seconds|sync_(hold|publish|update|resume)_seconds)$/],
  ["Sampler and trainer apart (log-probability)", /^(mismatch\/(fresh|stale)_mean_abs|mismatch\/mean_abs|mismatch\/abs_mean|sync_logprob_difference)$/],
  ["Clipped fraction", /^(clip_fraction|clip\/.*|ratio\/clipped.*)$/],
  ["Learning rate", /^learning_rate$/],
  [solveRates, /^tasks\/(unsolved|hard|target|easy|solved)$/],
  ["Groups without a signal", /^(flat_groups|groups\/(zero_variance|equal_dropped))$/],
  ["Memory and devices", /^(memory\/.*|mfu|memory_.*)$/],
];

// dashes tell the lines of runs apart, the first of which is this one.
const dashes = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 2], [1, 5]];

export interface ChartOf { title: string; curves: Curve[]; smooth?: number; stacked?: boolean; mark?: Mark }

// best is the checkpoint with the best result of an evaluation, of the trainer that reports it.
export function best(s: Summary, evaluation: string): Mark | undefined {
  const c = s.blocks.map((b) => b.best_checkpoint).find((c) => c?.metric.startsWith(`evaluation/${evaluation}/`));
  return c && { step: c.step, label: `best checkpoint: step ${c.step}` };
}

function split(name: string): [string, string] {
  const at = name.indexOf(" ");
  return [name.slice(0, at), name.slice(at + 1)];
}

// charts are those of a run that have a topic, and then one for each metric that has none, if asked for.
export function charts(s: Summary, all = false): ChartOf[] {
  const out: ChartOf[] = [], used = new Set<string>(), metrics = s.metrics.filter((m) => !m.name.startsWith("machine ")); // those are beside the timeline
  for (const [title, wanted] of topics) {
    const found = metrics.filter((m) => wanted.test(split(m.name)[1]));
    if (!found.length) continue;
    if (title === solveRates) {
      for (const address of new Set(found.map((m) => split(m.name)[0]))) {
        const of = difficulties.map((d) => `${address} tasks/${d}`).filter((name) => found.some((m) => m.name === name));
        of.forEach((name) => used.add(name));
        out.push({ title: `${title}: ${short(address)}`, stacked: true, smooth: 0, curves: of.map((name) => ({ run: s.name, name, label: name.slice(name.indexOf("/") + 1) })) });
      }
      continue;
    }
    const several = new Set(found.map((m) => split(m.name)[1])).size > 1;
    const curves = found.map((m) => {
      used.add(m.name);
      const [address, metric] = split(m.name);
      const blocks = new Set(found.map((f) => split(f.name)[0])).size > 1;
      const ends = metrics.some((o) => o.name === m.name + "/low") && { low: m.name + "/low", high: m.name + "/high" };
      return { run: s.name, name: m.name, ...ends, label: [blocks || !several ? short(address) : "", several ? metric.replace(/^evaluation\//, "") : ""].filter(Boolean).join(" ") };
    });
    const evaluations = new Set(found.map((m) => split(m.name)[1].split("/")[1]));
    out.push({ title, curves, ...(/^(Evaluation|Held-out tasks)$/.test(title) && { smooth: 0 }), // these are few
      ...(title === "Held-out tasks" && { mark: [...evaluations].map((e) => best(s, e)).find(Boolean) }) });
  }
  if (all) for (const m of metrics) if (!used.has(m.name)) {
    const [address, metric] = split(m.name);
    out.push({ title: metric, curves: [{ run: s.name, name: m.name, label: short(address) }] });
  }
  return out;
}

export function Curves({ s, route, runs, again }: { s: Summary; route: Route; runs: RunRow[]; again: number }) {
  const [window, setWindow] = useState<Window>({});
  const smooth = Number(route.q.get("smooth") ?? 0.6), x = route.q.get("x") === "time" ? "time" : "step";
  const filter = route.q.get("metric") ?? "", all = route.q.get("all") === "1";
  const others = (route.q.get("with") ?? "").split(",").filter(Boolean).map(decodeURIComponent);
  const compared = useAll<Summary>(others.map((o) => `runs/${part(o)}`), again);
  const compare = (names: string[]) => change(route, { with: names.map(part).join(",") });
  const list = useMemo(() => {
    const wanted = filter.toLowerCase();
    const own = charts(s, all || filter !== "");
    const theirs = compared.flatMap((o) => (o ? [charts(o, all || filter !== "")] : []));
    return own.map((c) => {
      const same = [c, ...theirs.flatMap((t) => t.find((t) => t.title === c.title) ?? [])];
      if (same.length === 1) return c;
      return { ...c, curves: same.flatMap((o, i) => o.curves.map((k) => ({ ...k, label: `${k.run} ${k.label}`, dash: dashes[i % dashes.length] }))) };
    }).filter((c) => !wanted || c.title.toLowerCase().includes(wanted) || c.curves.some((k) => k.name.toLowerCase().includes(wanted)));
  }, [s, compared.map((o) => o?.seq).join(), filter, all]);
  return (
    <>
      <h1 class="sr">Curves</h1>
      <form class="controls" onSubmit={(e) => e.preventDefault()}>
        <label>Metric <input type="search" value={filter} placeholder="all topics" onInput={(e) => change(route, { metric: e.currentTarget.value })} /></label>
        <label>Smoothing <input type="range" min="0" max="0.99" step="0.01" value={smooth} onInput={(e) => change(route, { smooth: e.currentTarget.value })} /> <output>{smooth.toFixed(2)}</output></label>
        <label>Against <select value={x} onChange={(e) => { setWindow({}); change(route, { x: e.currentTarget.value }); }}><option value="step">steps</option><option value="time">time</option></select></label>
        {runs.length > 1 && <label>Compare with <select value="" onChange={(e) => compare([...others, e.currentTarget.value])}>
          <option value="">a run</option>{runs.filter((r) => r.name !== s.name && !others.includes(r.name)).map((r) => <option key={r.name}>{r.name}</option>)}</select></label>}
        {others.map((o) => <button key={o} type="button" aria-label={`Do not compare with ${o}`} onClick={() => compare(others.filter((n) => n !== o))}>{o} ×</button>)}
        <label><input type="checkbox" checked={all} onChange={(e) => change(route, { all: e.currentTarget.checked ? "1" : "" })} /> every metric</label>
        {window.from !== undefined && <button type="button" onClick={() => setWindow({})}>Show all</button>}
      </form>
      {list.length === 0 && <p class="muted">No metric was reported yet{filter && <> whose name contains “{filter}”</>}.</p>}
      <div class="charts">{list.slice(0, 60).map((c) => <Chart key={c.title + c.curves[0].name} smooth={smooth} {...c} x={x} window={window} onWindow={setWindow} again={again} />)}</div>
      {list.length > 60 && <p class="muted">{list.length - 60} more: narrow the metric.</p>}
    </>
  );
}
