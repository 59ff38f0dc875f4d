import { useEffect, useState } from "preact/hooks";
import { Completion, Group, GroupList, GroupRow, Message, Same, Sequence, Summary, Token, get, part, query, useGet } from "./api";
import { useDark } from "./chart";
import { clock, num } from "./format";
import { Route, change, link } from "./route";

export function Samples({ s, route, again }: { s: Summary; route: Route; again: number }) {
  if (route.rest.length >= 2) return <OneGroup s={s} route={route} />;
  return <List s={s} route={route} again={again} />;
}

// Shown is text of a model: its direction does not reach the text around it.
export function Shown({ text }: { text: string }) {
  return <bdi class="text">{text || "∅"}</bdi>;
}

const fields: [string, string, string][] = [["least", "Score from", "number"], ["most", "to", "number"], ["first_step", "Step from", "number"], ["last_step", "to", "number"], ["first_version", "Version from", "number"], ["last_version", "to", "number"]];

function List({ s, route, again }: { s: Summary; route: Route; again: number }) {
  const q = route.q, after = Number(q.get("after") ?? 0);
  const wanted = Object.fromEntries([...fields.map((f) => f[0]), "environment", "text", "state"].map((k) => [k, q.get(k)]));
  const path = `runs/${part(s.name)}/samples?` + query({ ...wanted, after: after || undefined, limit: 50 });
  const found = useGet<GroupList>(path, after ? 0 : again), list = found.value;
  const set = (name: string) => (e: Event) => change(route, { [name]: (e.currentTarget as HTMLInputElement).value, after: "" });
  return (
    <>
      <h1 class="sr">Samples</h1>
      <form class="controls" onSubmit={(e) => e.preventDefault()}>
        <label>Text <Field type="search" value={q.get("text") ?? ""} onChange={set("text")} /></label>
        {list && list.environments.length > 1 && <label>Environment <select value={q.get("environment") ?? ""} onChange={set("environment")}><option value="">all</option>{list.environments.map((e) => <option key={e}>{e}</option>)}</select></label>}
        <label>Groups <select value={q.get("state") ?? ""} onChange={set("state")}>
          <option value="">all</option><option value="mixed">scores differ</option><option value="degenerate">all scores equal</option><option value="trained">trained</option><option value="waiting">waiting</option><option value="dropped">dropped</option><option value="evaluation">of evaluations</option>
        </select></label>
        {fields.map(([name, label, type]) => <label key={name} class="narrow">{label} <Field type={type} value={q.get(name) ?? ""} onChange={set(name)} /></label>)}
      </form>
      {found.error && <p class="error" role="alert">{found.error}</p>}
      {!list && !found.error && <p class="muted" role="status">Reading the samples…</p>}
      {list && <p class="muted" role="status">{num(list.total)} groups are recorded{list.evaluations > 0 && <>, {num(list.evaluations)} of them <a href={link(s.name, "samples", [], new URLSearchParams({ state: "evaluation" }))}>of evaluations</a></>}{list.lost > 0 && `, ${list.lost} could not be`}.{list.groups.length === 0 && " None matches."}</p>}
      <div class="scroll" tabIndex={0} role="region" aria-label="Groups">
        <table class="groups">
          <thead><tr><th class="number">Score</th><th>Scores</th><th>Prompt</th><th>Best completion</th><th class="number">Step</th><th class="number">Version</th><th class="number">Stale</th><th class="number">Tokens</th><th>Environment</th><th>Time</th></tr></thead>
          <tbody>{list?.groups.map((g) => <Row key={g.block + g.id} g={g} run={s.name} />)}</tbody>
        </table>
      </div>
      {list && (list.next > 0 || after > 0) && <p class="controls">
        {after > 0 && <a href={link(s.name, "samples", [], newest(q))}>Newest</a>}
        {list.next > 0 && <a href={link(s.name, "samples", [], older(q, String(list.next)))}>Older</a>}
      </p>}
    </>
  );
}

// Field keeps what is being typed while the list is drawn anew for new groups. It counts at Enter, or when it is left.
function Field({ type, value, onChange }: { type: string; value: string; onChange: (e: Event) => void }) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  return <input type={type} step="any" value={typed} onInput={(e) => setTyped(e.currentTarget.value)} onChange={onChange} />;
}

function newest(q: URLSearchParams): URLSearchParams { const out = new URLSearchParams(q); out.delete("after"); return out; }
function older(q: URLSearchParams, after: string): URLSearchParams { const out = new URLSearchParams(q); out.set("after", after); return out; }

function Row({ g, run }: { g: GroupRow; run: string }) {
  const scores = g.scores ?? [], least = Math.min(...scores), most = Math.max(...scores);
  const low = Math.min(0, least), high = Math.max(1, most); // so that all 0 and all 1 differ
  return (
    <tr>
      <td class="number">{num(g.mean)}</td>
      <td><span class="bars" role="img" aria-label={`${scores.length} scores from ${num(least)} to ${num(most)}`}>
        {scores.slice(0, 32).map((v, i) => <i key={i} style={{ height: 2 + (14 * (v - low)) / (high - low) + "px" }} />)}</span></td>
      <td class="wide"><a href={link(run, "samples", [g.block, g.id])}><Shown text={g.prompt} /></a></td>
      <td class="wide"><Shown text={g.best} /></td>
      <td class="number">{g.step ?? (g.evaluation ? "–" : g.dropped ? g.dropped : "waits")}</td>
      <td class="number">{g.versions ? (g.versions[0] === g.versions[1] ? g.versions[0] : g.versions.join("–")) : "?"}</td>
      <td class="number">{g.staleness ?? "–"}</td><td class="number">{num(g.tokens)}</td>
      <td><bdi>{g.environment}</bdi></td><td>{clock(g.time)}</td>
    </tr>
  );
}

const versionOf = (g: GroupRow): string => g.versions ? (g.versions[0] === g.versions[1] ? `${g.versions[0]}` : g.versions.join("–")) : "?";

// SamePrompt lists what was made of a group's prompt at other times, and shows one of them beside the group.
function SamePrompt({ s, route, g, path }: { s: Summary; route: Route; g: Group; path: string }) {
  const same = useGet<Same>(`${path}/same`, s.status).value, beside = route.q.get("with") ?? "";
  const other = useGet<Group>(beside ? `runs/${part(s.name)}/samples/${part(g.block)}/${part(beside)}` : null);
  if (!same?.groups.length) return null;
  const column = (o: Group) => (
    <section aria-label={`Group ${o.id}`}>
      <h3>Policy version {versionOf(o)} <small class="muted">{o.step ? `step ${o.step}, ` : ""}mean score {num(o.mean)}</small></h3>
      <ol class="conversation">{o.completions.map((c, i) => <li key={i}><b>{num(c.score)}</b> <Shown text={short(c)} /></li>)}</ol>
    </section>
  );
  return (
    <>
      <h2>Same prompt at other versions</h2>
      <p class="controls"><label>Beside this group <select value={beside} onChange={(e) => change(route, { with: e.currentTarget.value })}>
        <option value="">none</option>
        {same.groups.map((o) => <option key={o.id} value={o.id}>version {versionOf(o)}, {o.step ? `step ${o.step}, ` : ""}mean score {num(o.mean)}, group {o.id}</option>)}
      </select></label>{!same.whole && <span class="muted">Only the newest groups were searched.</span>}</p>
      {other.error && <p class="error" role="alert">{other.error}</p>}
      {other.value && <div class="beside">{[g, other.value].sort((a, b) => a.id - b.id).map((o) => <div key={o.id}>{column(o)}</div>)}</div>}
    </>
  );
}

function OneGroup({ s, route }: { s: Summary; route: Route }) {
  const [block, id] = route.rest, path = `runs/${part(s.name)}/samples/${part(block)}/${part(id)}`;
  const { value: g, error } = useGet<Group>(path, s.status);
  const chosen = Math.min(Number(route.q.get("c") ?? 0), Math.max(0, (g?.completions.length ?? 1) - 1));
  const metrics = [...new Set(g?.completions.flatMap((c) => Object.keys(c.metrics ?? {})))].sort(); // of each reward function
  const near = (by: number) => link(s.name, "samples", [block, Number(id) + by], route.q);
  return (
    <>
      <p class="controls"><a href={link(s.name, "samples")}>All samples</a> <a href={near(-1)}>Previous group</a> <a href={near(1)}>Next group</a></p>
      {error && <p class="error" role="alert">{error}</p>}
      {g && <>
        <h1>Group {g.id} <small class="muted">of <bdi>{g.environment}</bdi></small></h1>
        <p class="muted">{g.step ? `step ${g.step}` : g.dropped ? `dropped: ${g.dropped}` : g.evaluation ? "of an evaluation, never trained" : "waits to be trained"}
          {g.versions && `, sampled by policy version ${g.versions[0] === g.versions[1] ? g.versions[0] : g.versions.join(" to ")}`}
          {g.staleness !== undefined && `, ${g.staleness} policy version${g.staleness === 1 ? "" : "s"} behind`}, mean score {num(g.mean)}{g.spread === 0 && " (all scores are equal: nothing is learned from them)"}
          {g.generation && Object.entries(g.generation).slice(0, 6).map(([k, v]) => `, ${k} ${String(v)}`)}</p>
        <Conversation messages={g.messages} />
        {g.expected && <p class="expected">Expected answer: <Shown text={g.expected} /></p>}
        <h2>Completions</h2>
        <div class="scroll" tabIndex={0} role="region" aria-label="Completions">
          <table class="groups">
            <thead><tr><th>No.</th><th class="number">Score</th>{metrics.map((m) => <th key={m} class="number name"><bdi>{m}</bdi></th>)}<th class="number">Advantage</th><th>Completion</th><th>Finish</th><th class="number">Tokens</th><th class="number">Trained</th><th class="number">Mismatch</th></tr></thead>
            <tbody>{g.completions.map((c, i) => (
              <tr key={i} class={i === chosen ? "chosen" : ""}>
                <td><a href={link(s.name, "samples", [block, id], { ...Object.fromEntries(route.q), c: i })} aria-current={i === chosen ? "true" : undefined}>{i}</a></td>
                <td class="number">{num(c.score)}</td>{metrics.map((m) => <td key={m} class="number">{num(c.metrics?.[m])}</td>)}<td class="number">{num(c.advantage)}</td>
                <td class="wide">{c.part && <span class="muted">Same rollout as above. </span>}<Shown text={short(c)} />{c.failed && <span class="failure">Failed: <Shown text={c.failed} /></span>}</td>
                <td>{c.finish || "–"}</td>
                <td class="number">{c.tokens}</td><td class="number">{c.trained}</td><td class="number">{num(c.mismatch)}</td>
              </tr>))}
            </tbody>
          </table>
        </div>
        <SamePrompt s={s} route={route} g={g} path={path} />
        {g.completions[chosen] && <>
          <h2>Completion {chosen}</h2>
          <Conversation messages={g.completions[chosen].messages} />
          {g.completions[chosen].masked?.map((m) => <p key={m.start} class="muted">Tokens {m.start} to {m.end - 1} are not trained: <bdi>{m.why}</bdi></p>)}
          <Tokens path={`${path}/${chosen}`} route={route} />
        </>}
      </>}
    </>
  );
}

function short(c: Completion): string {
  const text = c.messages.at(-1)?.text ?? "";
  return text.length > 160 ? text.slice(0, 160) + "…" : text;
}

function Conversation({ messages }: { messages: Message[] }) {
  return <ol class="conversation">{messages.map((m, i) => <li key={i} class={"role-" + m.role.replace(/\W/g, "")}><b>{m.role}</b><pre><Shown text={m.text} /></pre></li>)}</ol>;
}

type By = "advantage" | "ratio" | "sampler" | "version";
const colorings: [By, string][] = [["advantage", "advantage"], ["ratio", "trainer − sampler log-probability"], ["sampler", "sampler's log-probability"], ["version", "policy version"]];

// value is what a token is colored by.
function value(t: Token, by: By): number | undefined {
  if (!t.trained) return undefined;
  const v = by === "ratio" ? (t.trainer != null && t.sampler != null ? t.trainer - t.sampler : undefined) : by === "version" ? t.version : t[by];
  return v ?? undefined;
}

// color is red below 0, blue above; log-probabilities are redder the less likely; versions have a hue each.
function color(v: number, by: By, scale: number, dark: boolean): string {
  if (by === "version") return `hsl(${(v * 67) % 360} 70% ${dark ? 35 : 80}%)`;
  if (by === "sampler") return `rgba(220, 60, 60, ${Math.min(0.5, -v / 8)})`;
  const strength = Math.min(0.5, (0.5 * Math.abs(v)) / (scale || 1));
  return v < 0 ? `rgba(220, 60, 60, ${strength})` : `rgba(50, 110, 240, ${strength})`;
}

const page = 4096;

function Tokens({ path, route }: { path: string; route: Route }) {
  const dark = useDark(), by = (route.q.get("by") as By) || "advantage";
  const [seq, set] = useState<Sequence>(), [error, setError] = useState(""), [over, setOver] = useState<number>();
  useEffect(() => {
    setOver(undefined);
    get<Sequence>(`${path}?limit=${page}`).then((v) => { set(v); setError(""); }, (e) => { set(undefined); setError(e.message); });
  }, [path]);
  const more = () => get<Sequence>(`${path}?limit=${page}&offset=${seq!.tokens.length}`).then((v) => set({ ...v, tokens: [...seq!.tokens, ...v.tokens] }), (e) => setError(e.message));
  if (error) return <p class="error" role="alert">{error}</p>;
  if (!seq) return null;
  const values = seq.tokens.map((t) => value(t, by)), scale = Math.max(1e-6, ...values.map((v) => Math.abs(v ?? 0)));
  const some = values.some((v) => v !== undefined), t = over !== undefined ? seq.tokens[over] : undefined;
  return (
    <>
      <form class="controls" onSubmit={(e) => e.preventDefault()}>
        <label>Color tokens by <select value={by} onChange={(e) => change(route, { by: e.currentTarget.value })}>{colorings.map(([k, label]) => <option key={k} value={k}>{label}</option>)}</select></label>
        {!some && <span class="muted">not recorded for this completion</span>}
      </form>
      <p class="tokens" onMouseOver={(e) => { const i = (e.target as HTMLElement).dataset.i; if (i) setOver(Number(i)); }}
        onFocusIn={(e) => { const i = (e.target as HTMLElement).dataset.i; if (i) setOver(Number(i)); }}>
        {seq.tokens.map((token, i) => (
          <span key={i} data-i={i} tabIndex={i === (over ?? seq.first) ? 0 : -1} class={token.trained ? "" : "masked"}
            onKeyDown={(e) => { const to = i + (e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? -1 : 0); if (to !== i && to >= 0 && to < seq.tokens.length) { e.preventDefault(); setOver(to); (e.currentTarget.parentElement?.children[to] as HTMLElement)?.focus(); } }}
            style={{ background: values[i] !== undefined ? color(values[i]!, by, scale, dark) : "" }}>{token.text}</span>))}
      </p>
      {seq.tokens.length < seq.total && <p class="controls"><button type="button" onClick={more}>Show {Math.min(page, seq.total - seq.tokens.length)} more of {seq.total} tokens</button></p>}
      <p class="token" role="status">{t ? <>token {over}: <bdi>“{t.text}”</bdi>, id {t.id}{t.trained ? <>, advantage {num(t.advantage)}, log-probability of the sampler {num(t.sampler)}, of the trainer {num(t.trainer)}{t.version !== undefined && <>, policy version {t.version}</>}</> : ", not trained"}</>
        : "Point at a token, or move with the arrow keys, to see its numbers. Tokens that are not trained are dimmed."}</p>
    </>
  );
}
