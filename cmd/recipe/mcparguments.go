package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/recipe-rl/recipe/internal/nearest"
)

// invalidArguments begins the answer of the server to arguments that the schema of a tool forbids.
const invalidArguments = `validating "arguments": `

// toolArguments is the part of a tool's schema that tells its arguments.
type toolArguments struct {
	Properties map[string]struct {
		Description string `json:"description"`
	} `json:"properties"`
	Required []string `json:"required"`
}

// nameArguments adds the arguments of a tool to the refusal of wrong ones: an agent that has guessed one can correct
// itself, also when its client shows it no schema.
func nameArguments(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, req)
		call, isCall := req.(*mcp.CallToolRequest)
		refusal, ok := result.(*mcp.CallToolResult)
		if err != nil || !isCall || !ok || !refusal.IsError || len(refusal.Content) != 1 {
			return result, err
		}
		text, ok := refusal.Content[0].(*mcp.TextContent)
		if !ok || !strings.HasPrefix(text.Text, invalidArguments) {
			return result, err
		}
		all, err := next(ctx, "tools/list", &mcp.ListToolsRequest{Session: call.Session, Params: &mcp.ListToolsParams{}})
		if err != nil {
			return result, nil //nolint:nilerr // the refusal is the answer, with or without more about it
		}
		for _, tool := range all.(*mcp.ListToolsResult).Tools {
			if tool.Name == call.Params.Name {
				text.Text += "\n" + allowedArguments(tool, call.Params.Arguments)
			}
		}
		return result, nil
	}
}

// allowedArguments names which arguments a tool takes, after what was probably meant by those that it does not take.
func allowedArguments(tool *mcp.Tool, given json.RawMessage) string {
	var takes toolArguments
	schema, err := json.Marshal(tool.InputSchema)
	if err != nil || json.Unmarshal(schema, &takes) != nil {
		return ""
	}
	if len(takes.Properties) == 0 {
		return "The tool " + tool.Name + " takes no arguments."
	}
	names := slices.Sorted(maps.Keys(takes.Properties))
	var text strings.Builder
	var values map[string]json.RawMessage
	_ = json.Unmarshal(given, &values) // what is no object has no names, and the refusal says so
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if meant := nearest.Name(name, names); meant != "" && meant != name && !slices.Contains(names, name) {
			fmt.Fprintf(&text, "%q is no argument: %s\n", name, strings.TrimSpace(didYouMean(meant)))
		}
	}
	fmt.Fprintf(&text, "The tool %s takes:", tool.Name)
	for _, name := range names {
		optional := " (optional)"
		if slices.Contains(takes.Required, name) {
			optional = ""
		}
		fmt.Fprintf(&text, "\n- %s%s: %s", name, optional, takes.Properties[name].Description)
	}
	return text.String()
}
