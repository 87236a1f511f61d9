// Package config fills a command's settings from the environment and a YAML file, below its flags: a flag wins over the
// environment, the environment over the file. An unknown key or an unreadable value is refused, by name: a server never
// starts on a setting that it did not understand.
package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Setting is one value that a flag, an environment variable or a key of the file can set.
type Setting struct {
	Name string             // of the flag, kebab-case; the key is the same in snake_case
	Set  func(string) error // parses and stores
	Done bool               // set by a flag already
}

// Key returns the setting's key in the file: its name in snake_case.
func (s Setting) Key() string { return strings.ReplaceAll(s.Name, "-", "_") }

// Variable returns the setting's environment variable: prefix, then its name in upper case.
func (s Setting) Variable(prefix string) string {
	return prefix + strings.ToUpper(s.Key())
}

// Fill sets what no flag has set. lookup reads the environment; file holds YAML, nil for none: one mapping from keys to
// scalars. prefix starts every variable, such as MILLRACE_; an empty variable is not set.
func Fill(settings []Setting, prefix string, lookup func(string) (string, bool), file []byte) error {
	values, err := parse(file)
	if err != nil {
		return err
	}
	for _, s := range settings {
		fromFile, inFile := values[s.Key()]
		delete(values, s.Key())
		if s.Done {
			continue
		}
		variable := s.Variable(prefix)
		if v, ok := lookup(variable); ok && v != "" {
			if err := s.Set(v); err != nil {
				return fmt.Errorf("environment variable %s: %w", variable, err)
			}
			continue
		}
		if inFile {
			if err := s.Set(fromFile); err != nil {
				return fmt.Errorf("key %s of the configuration file: %w", s.Key(), err)
			}
		}
	}
	if len(values) > 0 {
		return fmt.Errorf("unknown key %s in the configuration file", slices.Sorted(maps.Keys(values))[0])
	}
	return nil
}

// parse reads a mapping from keys to scalars. Scalars keep the text they were written with.
func parse(file []byte) (map[string]string, error) {
	values := make(map[string]string)
	if len(file) == 0 {
		return values, nil
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(file, &doc); err != nil {
		return nil, fmt.Errorf("read configuration file: %w", err)
	}
	if len(doc.Content) == 0 {
		return values, nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("read configuration file: line %d: a mapping from keys to values is wanted", root.Line)
	}
	for i := 0; i < len(root.Content); i += 2 {
		k, v := root.Content[i], root.Content[i+1]
		if v.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("key %s of the configuration file: line %d: one value is wanted", k.Value, v.Line)
		}
		if _, twice := values[k.Value]; twice {
			return nil, fmt.Errorf("key %s of the configuration file: line %d: given twice", k.Value, k.Line)
		}
		values[k.Value] = v.Value
	}
	return values, nil
}
