package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
)

// component is a part of a software bill of materials in CycloneDX 1.6: https://cyclonedx.org/docs/1.6/json/
type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	Purl    string `json:"purl"`
}

// bill is the bill of materials of a program: the modules that it was built from, as the program itself has them.
func bill(v version, p program) (artifact, error) {
	info, err := buildinfo.Read(bytes.NewReader(p.content))
	if err != nil {
		return artifact{}, fmt.Errorf("read the modules of %s: %w", p.path, err)
	}
	document := struct {
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Version    int         `json:"version"`
		Metadata   any         `json:"metadata"`
		Components []component `json:"components"`
	}{"CycloneDX", "1.6", 1, map[string]any{"component": component{"application", name, v.plain(),
		"pkg:golang/" + info.Main.Path + "@" + v.plain()}}, []component{{"library", "std", info.GoVersion,
		"pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}}}
	for _, m := range info.Deps {
		document.Components = append(document.Components, moduleOf(m))
	}
	content, err := json.MarshalIndent(document, "", " ")
	return artifact{fmt.Sprintf("%s_%s_%s.cdx.json", name, v.plain(), p.platform()), append(content, '\n')}, err
}

func moduleOf(m *debug.Module) component {
	if m.Replace != nil {
		m = m.Replace
	}
	return component{"library", m.Path, m.Version, "pkg:golang/" + m.Path + "@" + m.Version}
}
