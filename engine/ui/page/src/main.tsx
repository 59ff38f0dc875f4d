import { render } from "preact";
import { useEffect } from "preact/hooks";
import { RunRow, Summary, part, useGet, useLive } from "./api";
import { Curves } from "./curves";
import { Configured } from "./config";
import { Evaluations } from "./evaluations";
import { Keys } from "./keys";
import { Logs } from "./logs";
import { Overview } from "./overview";
import { Route, link, useRoute } from "./route";
import { Samples } from "./samples";
import { Lanes } from "./timeline";
import { num, span } from "./format";

const views: [string, string][] = [["overview", "Overview"], ["curves", "Curves"], ["evaluations", "Evaluations"], ["samples", "Samples"], ["timeline", "Timeline"], ["logs", "Logs"], ["config", "Plan"]];

function App() {
  const route = useRoute();
  const runs = useGet<RunRow[]>("runs", route.run);
  useEffect(() => {
    if (!route.run && runs.value?.length === 1) location.replace(link(runs.value[0].name, "overview"));
  }, [route.run, runs.value]);
  if (runs.error) return <main><p class="error" role="alert">{runs.error}</p></main>;
  if (!route.run) return <Runs runs={runs.value} />;
  return <Run key={route.run} route={route} runs={runs.value ?? []} />;
}

function Runs({ runs }: { runs?: RunRow[] }) {
  return (
    <main>
      <h1>Runs</h1>
      {runs && runs.length === 0 && <p>There is no run here yet: recipe apply starts one.</p>}
      <div class="scroll" tabIndex={0} role="region" aria-label="Runs">
        <table>
          <thead><tr><th>Run</th><th>Status</th><th>Step</th><th>Policy version</th><th>Started</th><th>Took</th></tr></thead>
          <tbody>{runs?.map((r) => (
            <tr key={r.name}>
              <td><a href={link(r.name, "overview")}>{r.name}</a></td>
              <td><Status status={r.status} /></td>
              <td>{r.total ? `${r.step} of ${r.total}` : "–"}</td><td>{r.version}</td>
              <td>{r.started ? new Date(r.started).toLocaleString() : "–"}</td>
              <td>{r.started ? span(((r.ended ? Date.parse(r.ended) : Date.now()) - Date.parse(r.started)) / 1000) : "–"}</td>
            </tr>))}
          </tbody>
        </table>
      </div>
    </main>
  );
}

export function Status({ status }: { status: string }) {
  return <span class={"pill " + status.split(":")[0]}>{status}</span>;
}

function Run({ route, runs }: { route: Route; runs: RunRow[] }) {
  const live = useLive(route.run, 1000);
  const { value: s, error } = useGet<Summary>(`runs/${part(route.run)}`, live.seq);
  useEffect(() => {
    document.title = s ? `${s.recipe || s.name}: ${s.status} – recipe` : "recipe";
  }, [s?.status, s?.name]);
  const job = s?.blocks.find((b) => b.kind === "trainer");
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to content</a>
      <header>
        <div class="title">
          <a href="#/" class="home" aria-label="recipe: all runs">recipe</a>
          <label class="sr" for="run">Run</label>
          <select id="run" value={route.run} onChange={(e) => { location.hash = link(e.currentTarget.value, route.view); }}>
            {!runs.some((r) => r.name === route.run) && <option>{route.run}</option>}
            {runs.map((r) => <option key={r.name} value={r.name}>{r.name}</option>)}
          </select>
          {s && <Status status={s.status} />}
          {job?.total ? <span class="muted">step {num(job.step)} of {num(job.total)}</span> : null}
          {s && s.status === "running" && !live.connected && <span class="muted">connecting…</span>}
          <Keys route={route} views={views.map(([name]) => name)} />
        </div>
        <nav aria-label="Views">
          {views.map(([name, label]) => <a key={name} href={link(route.run, name)} aria-current={route.view === name ? "page" : undefined}>{label}</a>)}
        </nav>
      </header>
      <main id="main" tabIndex={-1}>
        {error && <p class="error" role="alert">{error}</p>}
        {s?.error && <p class="error" role="alert">{s.error}</p>}
        {s && route.view === "overview" && <Overview s={s} route={route} again={live.seq} />}
        {s && route.view === "curves" && <Curves s={s} route={route} runs={runs} again={live.seq} />}
        {s && route.view === "evaluations" && <Evaluations s={s} route={route} />}
        {s && route.view === "samples" && <Samples s={s} route={route} again={live.seq} />}
        {s && route.view === "timeline" && <Lanes s={s} again={live.seq} />}
        {s && route.view === "logs" && <Logs s={s} route={route} again={live.seq} />}
        {s && route.view === "config" && <Configured s={s} />}
      </main>
    </>
  );
}

render(<App />, document.getElementById("app")!);
