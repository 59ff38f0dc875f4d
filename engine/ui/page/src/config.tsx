import { Configuration, Summary, part, useGet } from "./api";

export function Configured({ s }: { s: Summary }) {
  const { value: c, error } = useGet<Configuration>(`runs/${part(s.name)}/config`, s.status);
  return (
    <>
      {error && <p class="error" role="alert">{error}</p>}
      {c && <>
        <h1>Plan and configuration</h1>
        <p class="muted">{c.file}, digest {c.digest.slice(0, 16)}, run {s.id}. Sensitive values are not recorded: fingerprints stand in their places.</p>
        <h2>Plan that was applied</h2>
        <div class="scroll" tabIndex={0} role="region" aria-label="Plan"><table>
          <thead><tr><th>Block</th><th>Action</th><th>Reason</th></tr></thead>
          <tbody>{c.plan.map((o, i) => <tr key={i}><td>{o.address}</td><td>{o.action}</td><td>{o.reason}</td></tr>)}</tbody>
        </table></div>
        <h2>Blocks</h2>
        {c.blocks.map((b) => <details key={b.address}><summary>{b.address}{b.devices?.length ? ` on ${b.devices.join(", ")}` : ""}</summary>
          <pre class="config">{JSON.stringify(b.config, null, 2)}</pre>
          {b.checkpoint && <p class="muted">newest checkpoint: step {b.checkpoint.step}, {b.checkpoint.path}</p>}</details>)}
        {c.lineage && <>
          <h2>Lineage</h2>
          <p>{c.lineage.parent ? "A fork of another run." : "Not a fork."} Applied {new Date(c.lineage.run.applied).toLocaleString()}{c.lineage.program && ` by recipe ${c.lineage.program}`}.</p>
          {[["Parent", c.lineage.parent], ["Models, files and plugins of each block", c.lineage.blocks], ["Machine", c.lineage.machine]].map(([name, value]) => value && <details key={String(name)}>
            <summary>{String(name)}</summary><pre class="config">{JSON.stringify(value, null, 2)}</pre></details>)}
        </>}
        <h2>Outputs</h2>
        <dl class="outputs">{Object.entries(c.outputs).map(([k, v]) => <div key={k}><dt>{k}</dt><dd><code>{v}</code></dd></div>)}</dl>
      </>}
    </>
  );
}
