// Package sdk plays the scenarios of sdk/scenarios against the SDK of each language: real servers, proxies in front of them, and an
// agent of the language, which it drives over standard input. sdk/scenarios/README.md has the agent's protocol and the form of the files.
package sdk

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Scenario is one file.
type Scenario struct {
	// File is the name of the file without .yaml; Name says what holds.
	File string
	Name string `yaml:"name"`
	// Servers are started before the first step, each with flags of its own.
	Servers map[string]ServerSpec `yaml:"servers"`
	// Fakes are servers whose frames the steps play. A link or an agent may name one in the place of a server.
	Fakes map[string]FakeSpec `yaml:"fakes"`
	// Links are proxies, by name, in front of a server.
	Links map[string]string `yaml:"links"`
	// Agents are the processes that the steps drive.
	Agents map[string]AgentSpec `yaml:"agents"`
	// Not are the languages that the scenario is not about, and Only those that it is about alone.
	Not  []string `yaml:"not"`
	Only []string `yaml:"only"`
	// Long scenarios take more than some seconds: they are played where MILLRACE_SDK_LONG is 1.
	Long bool `yaml:"long"`
	// Pairs plays the scenario for each pair of languages: agents that have partner set are of the second one.
	Pairs bool `yaml:"pairs"`
	// Mutant is the planted bug that the scenario must find.
	Mutant string `yaml:"mutant"`
	Steps  []Step `yaml:"steps"`
}

// ServerSpec is a server of a scenario, or a cluster.
type ServerSpec struct {
	Flags []string `yaml:"flags"`
	// Nodes is the number of nodes of a cluster; 0: a server of its own.
	Nodes int `yaml:"nodes"`
	// Partitions is the number of partitions of the namespace that agents use, each with a log and a leader of its own; 0: one.
	Partitions int `yaml:"partitions"`
}

// FakeSpec is a server that the steps play. It has no settings.
type FakeSpec struct{}

// AgentSpec is an agent of a scenario.
type AgentSpec struct {
	// Link or Server is what the agent dials.
	Link   string `yaml:"link"`
	Server string `yaml:"server"`
	// Partner says that the agent is of the second language of a pair.
	Partner bool `yaml:"partner"`
	// Open are more fields of its open command.
	Open yaml.Node `yaml:"open"`
}

// Step is what one server, link or agent does. Line is where it stands in the file.
type Step struct {
	Who  string
	Line int
	// Word is what it does, and Value how.
	Word  string
	Value any
	// As keeps the answer under a name. Expect is what the answer must have, and ExpectErr what its error must have.
	As        string
	Expect    any
	ExpectErr any
	// HasExpect tells an expected null from no expectation.
	HasExpect bool
	// Start says that the step does not wait for the answer: a step answer does.
	Start bool
	// Until repeats the step until the answer is as expected.
	Until bool
}

// UnmarshalYAML reads a step: a map of one name to a map of one word and what belongs to it.
func (s *Step) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode || len(n.Content) != 2 || n.Content[1].Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: a step must be a name and what it does", n.Line)
	}
	s.Who, s.Line = n.Content[0].Value, n.Line
	codec := codecIn(n.Content[1], "json")
	body := n.Content[1].Content
	for i := 0; i < len(body); i += 2 {
		key, v := body[i].Value, body[i+1]
		var err error
		switch key {
		case "as":
			s.As = v.Value
		case "start":
			s.Start = v.Value == "true"
		case "until":
			s.Until = v.Value == "true"
		case "expect":
			s.HasExpect = true
			s.Expect, err = valueOf(v, key, codecIn(v, codecOfWord(body, codec)))
		case "expect_err":
			s.ExpectErr, err = valueOf(v, key, codec)
		default:
			if s.Word != "" {
				return fmt.Errorf("line %d: a step must have one word, and has %s and %s", n.Line, s.Word, key)
			}
			s.Word = key
			s.Value, err = valueOf(v, key, codec)
		}
		if err != nil {
			return err
		}
	}
	if s.Word == "" {
		return fmt.Errorf("line %d: a step must have a word", n.Line)
	}
	return nil
}

// codecIn is the codec that a map names, else the one around it.
func codecIn(n *yaml.Node, around string) string {
	if n.Kind == yaml.MappingNode {
		for i := 0; i < len(n.Content); i += 2 {
			if n.Content[i].Value == "codec" {
				return n.Content[i+1].Value
			}
		}
	}
	return around
}

// codecOfWord is the codec that the value of a step's word names.
func codecOfWord(body []*yaml.Node, around string) string {
	for i := 0; i < len(body); i += 2 {
		if key := body[i].Value; key != "expect" && key != "expect_err" {
			around = codecIn(body[i+1], around)
		}
	}
	return around
}

// valueOf makes of a node what the agent's protocol has: args, return and result are texts by the codec, all else is as it stands.
func valueOf(n *yaml.Node, key, codec string) (any, error) {
	switch n.Kind {
	case yaml.MappingNode:
		if isText(key) {
			return textOf(n, codec)
		}
		codec = codecIn(n, codec)
		out := map[string]any{}
		for i := 0; i < len(n.Content); i += 2 {
			name, v := n.Content[i].Value, n.Content[i+1]
			var err error
			if name == "args" && (key == "add_many" || key == "add_all") {
				if out[name], err = textsOf(v, codec); err != nil {
					return nil, err
				}
				continue
			}
			if out[name], err = valueOf(v, name, codec); err != nil {
				return nil, err
			}
		}
		return out, nil
	case yaml.SequenceNode:
		if isText(key) {
			return textOf(n, codec)
		}
		out := make([]any, len(n.Content))
		for i, v := range n.Content {
			var err error
			if out[i], err = valueOf(v, "", codec); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	if isText(key) {
		return textOf(n, codec)
	}
	return scalar(n)
}

// isText says that what stands under a key is a value of a job, which travels as text.
func isText(key string) bool { return key == "args" || key == "return" || key == "result" }

// textsOf is textOf for each entry of a list.
func textsOf(n *yaml.Node, codec string) ([]any, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("line %d: args must be a list", n.Line)
	}
	out := make([]any, len(n.Content))
	for i, v := range n.Content {
		var err error
		if out[i], err = textOf(v, codec); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// textOf is the value of a job as the agent's protocol has it: JSON text, text, or base64. Names of what was kept stay as they are.
func textOf(n *yaml.Node, codec string) (any, error) {
	if n.Kind == yaml.ScalarNode && strings.HasPrefix(n.Value, "$") {
		return n.Value, nil
	}
	switch codec {
	case "text":
		return n.Value, nil
	case "bytes":
		if n.Tag == "!!binary" {
			return strings.Join(strings.Fields(n.Value), ""), nil
		}
		return base64.StdEncoding.EncodeToString([]byte(n.Value)), nil
	}
	var b bytes.Buffer
	err := appendJSON(&b, n)
	return b.String(), err
}

// appendJSON writes a node as JSON, with its numbers and the order of its keys as they stand.
func appendJSON(b *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		b.WriteByte('{')
		for i := 0; i < len(n.Content); i += 2 {
			if i > 0 {
				b.WriteByte(',')
			}
			key, _ := json.Marshal(n.Content[i].Value)
			b.Write(append(key, ':'))
			if err := appendJSON(b, n.Content[i+1]); err != nil {
				return err
			}
		}
		b.WriteByte('}')
		return nil
	case yaml.SequenceNode:
		b.WriteByte('[')
		for i, v := range n.Content {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := appendJSON(b, v); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	}
	v, err := scalar(n)
	if err != nil {
		return err
	}
	text, err := json.Marshal(v)
	b.Write(text)
	return err
}

// scalar reads a scalar; numbers stay as they are written.
func scalar(n *yaml.Node) (any, error) {
	switch n.Tag {
	case "!!int", "!!float":
		return json.Number(n.Value), nil
	case "!!bool":
		return n.Value == "true", nil
	case "!!null":
		return nil, nil
	case "!!str", "!!timestamp":
		return n.Value, nil
	}
	return nil, fmt.Errorf("line %d: %s is not known", n.Line, n.Tag)
}

// Load reads the scenarios of a folder, by name.
func Load(dir string) (all []*Scenario, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	for _, file := range files {
		s, err := load(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		all = append(all, s)
	}
	return all, nil
}

func load(file string) (*Scenario, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &Scenario{File: strings.TrimSuffix(filepath.Base(file), ".yaml")}
	d := yaml.NewDecoder(bytes.NewReader(raw))
	d.KnownFields(true)
	if err := d.Decode(s); err != nil {
		return nil, err
	}
	switch {
	case s.Name == "":
		return nil, errors.New("name is required")
	case len(s.Steps) == 0:
		return nil, errors.New("steps is required")
	}
	for name, of := range s.Links {
		if !s.hasServer(of) {
			return nil, fmt.Errorf("link %s: there is no server %s", name, of)
		}
		if s.Servers[of].Nodes > 0 {
			return nil, fmt.Errorf("link %s: must be in front of a server, and %s is a cluster", name, of)
		}
	}
	for name, a := range s.Agents {
		_, link := s.Links[a.Link]
		server := s.hasServer(a.Server)
		if link == server {
			return nil, fmt.Errorf("agent %s: must name one link or one server", name)
		}
	}
	for _, step := range s.Steps {
		server := s.hasServer(step.Who)
		_, link := s.Links[step.Who]
		_, agent := s.Agents[step.Who]
		if !server && !link && !agent {
			return nil, fmt.Errorf("line %d: there is no %s", step.Line, step.Who)
		}
	}
	return s, nil
}

// opensREST reports whether an agent speaks REST alone.
func (a *AgentSpec) opensREST() bool {
	var open struct {
		Transport string `yaml:"transport"`
	}
	return a.Open.Kind != 0 && a.Open.Decode(&open) == nil && open.Transport == "rest"
}

// linksREST reports whether an agent of a link speaks REST alone: then the link is in front of that port.
func (s *Scenario) linksREST(link string) bool {
	for _, a := range s.Agents {
		if a.Link == link && a.opensREST() {
			return true
		}
	}
	return false
}

// hasServer reports whether there is a server, real or fake, of a name.
func (s *Scenario) hasServer(name string) bool {
	_, real := s.Servers[name]
	_, fake := s.Fakes[name]
	return real || fake
}

// For reports whether the scenario is about a language.
func (s *Scenario) For(lang string) bool {
	return !slices.Contains(s.Not, lang) && (len(s.Only) == 0 || slices.Contains(s.Only, lang))
}
