import { useState } from "preact/hooks";
import { Estimate, Evaluation, EvaluationResult, Flip, Summary, part, query, useGet } from "./api";
import { Chart, Window } from "./chart";
import { best } from "./curves";
import { num } from "./format";
import { Route, change } from "./route";
import { Shown } from "./samples";

// main is the number that stands for a result: pass@k of the smallest k, else the score.
const main = (r: EvaluationResult): [string, Estimate] => r.pass_at?.length ? [`pass@${r.pass_at[0].k}`, r.pass_at[0]] : ["score", r.score];
const signed = (v: number): string => (v > 0 ? "+" : "") + num(v);

// Evaluations are the results of each evaluation block, and what lies between the first of them and another.
export function Evaluations({ s, route }: { s: Summary; route: Route }) {
  const [window, setWindow] = useState<Window>({});
  const name = route.q.get("name") ?? "", step = route.q.get("step") ?? "";
  const reported = s.metrics.reduce((n, m) => n + (m.name.includes(" evaluation/") ? m.n : 0), 0);
  const { value: all, error } = useGet<Evaluation[]>(`runs/${part(s.name)}/evaluations?` + query({ name, step }), reported);
  return (
    <>
      <h1 class="sr">Evaluations</h1>
      {error && <p class="error" role="alert">{error}</p>}
      {!all && !error && <p class="muted" role="status">Reading the results…</p>}
      {all?.length === 0 && <p class="muted">No evaluation block of this run has a result. An <code>evaluation</code> block in the recipe evaluates the policy on held-out tasks while it is trained.</p>}
      {all?.map((e) => <One key={e.name} s={s} e={e} route={route} window={window} onWindow={setWindow} again={reported} />)}
    </>
  );
}

function One({ s, e, route, window, onWindow, again }: { s: Summary; e: Evaluation; route: Route; window: Window; onWindow: (w: Window) => void; again: unknown }) {
  const newest = e.results.at(-1), mark = best(s, e.name);
  if (!newest) return null;
  const [metric] = main(newest), of = ` evaluation/${e.name}/${metric}`;
  const curve = s.metrics.find((m) => m.name.endsWith(of));
  const ends = s.metrics.some((m) => m.name.endsWith(of + "/low")) && { low: curve?.name + "/low", high: curve?.name + "/high" };
  return (
    <section aria-label={`Evaluation ${e.name}`}>
      <h2>{e.name}</h2>
      {curve && <Chart title={`${metric} of held-out tasks, with 95 % interval`} curves={[{ run: s.name, name: curve.name, label: metric, ...ends }]} mark={mark} window={window} onWindow={onWindow} again={again} height={220} />}
      <div class="scroll" tabIndex={0} role="region" aria-label={`Results of ${e.name}`}>
        <table>
          <thead><tr><th class="number">Step</th><th class="number">Policy version</th><th class="number">{metric}</th><th class="number">95 % interval</th><th class="number">Since the baseline</th><th class="number">Tasks</th><th class="number">Failed completions</th><th class="number">Seconds</th><th /></tr></thead>
          <tbody>{e.results.map((r) => {
            const [, v] = main(r), c = r.baseline?.find((b) => b.metric === metric);
            return (
              <tr key={r.due}>
                <td class="number">{r.step}</td><td class="number">{r.policy_version}</td><td class="number">{num(v.mean)}</td><td class="number">{num(v.low)} to {num(v.high)}</td>
                <td class="number">{c ? `${signed(c.change)} ± ${num((c.high - c.low) / 2)}` : "–"}</td><td class="number">{r.tasks}</td><td class="number">{r.failed}</td><td class="number">{num(r.seconds)}</td>
                <td>{mark?.step === r.step && <b>best checkpoint</b>}</td>
              </tr>);
          })}</tbody>
        </table>
      </div>
      {e.error && <p class="warn">The results cannot be compared: {e.error}</p>}
      {e.change && <>
        <h3>Task by task: step {e.change.before.step} and step {e.change.after.step}</h3>
        <p class="controls"><label>Compare the first result with that of step <select value={e.change.after.step} onChange={(v) => change(route, { name: e.name, step: v.currentTarget.value })}>
          {e.results.slice(1).map((r) => <option key={r.due} value={r.step}>{r.step}</option>)}
        </select></label></p>
        {e.change.differ && <p class="warn">Settings or files differ on which scores depend, such as the reward function: not only the policy has changed.</p>}
        <p>{e.change.changes.map((c) => `${c.metric} ${num(c.before)} → ${num(c.after)}, ${signed(c.change)} (${num(c.low)} to ${num(c.high)}), ${c.tasks} tasks`).join("; ")}</p>
        <Flips title="Solved by the later one alone" total={e.gained} flips={e.change.flips.filter((f) => f.solved)} />
        <Flips title="Solved by the first one alone" total={e.lost} flips={e.change.flips.filter((f) => !f.solved)} />
      </>}
    </section>
  );
}

function Flips({ title, total, flips }: { title: string; total: number; flips: Flip[] }) {
  return (
    <details open={total > 0 && total <= 20}>
      <summary>{title}: {total}{total > flips.length && `, the first ${flips.length} below`}</summary>
      {flips.length > 0 && <div class="scroll" tabIndex={0} role="region" aria-label={title}>
        <table class="flips">
          <thead><tr><th class="number">Task</th><th>Prompt</th><th>Completion then</th><th>Completion later</th></tr></thead>
          <tbody>{flips.map((f) => <tr key={f.task}><td class="number">{f.task}</td><td><Shown text={f.prompt} /></td><td><Shown text={f.before} /></td><td><Shown text={f.after} /></td></tr>)}</tbody>
        </table>
      </div>}
    </details>
  );
}
