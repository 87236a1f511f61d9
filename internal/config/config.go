// Package config reads and checks settings, and plans what follows from them. It owns:
//
//   - Fill, which fills a command's settings from the environment and a YAML file, below its flags:
//     a flag wins over the environment, and the environment over the file.
//   - Cluster and Peer, a node's place in a cluster, with the checks of its addresses.
//   - Memory and Descriptors, which split what a process may use among its parts, so that all parts
//     together fit.
//   - Development and OneMore, which plan the files of a cluster for development without writing
//     them.
//   - Watcher, which reads files again when they change.
//
// Rules: an unknown key or an unreadable value is refused by name, so a server never starts on a
// setting that it did not understand. Nothing here depends on other packages of the server, except
// env.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
	// Item is set for a list. In the file that is a sequence of mappings, or of values, which are fields without a name. Item
	// turns each into one item of the text that a flag takes, where commas are between items. It refuses fields that it does
	// not know.
	Item func(fields map[string]string) (string, error)
}

// Key returns the setting's key in the file: its name in snake_case.
func (s Setting) Key() string { return strings.ReplaceAll(s.Name, "-", "_") }

// Variable returns the setting's environment variable: prefix and the key in upper case.
func (s Setting) Variable(prefix string) string {
	return prefix + strings.ToUpper(s.Key())
}

// Fill sets what no flag has set. environ is the environment, as NAME=value. file holds YAML, nil
// for none: one mapping from keys to scalars, or to what Item reads. prefix starts every variable,
// such as MILLRACE_.
//
// A setting whose flag was given still takes its key and its variable out of the lists, so that
// they do not count as unknown. What is left in the lists at the end is unknown, and the first in
// byte order is named.
func Fill(settings []Setting, prefix string, environ []string, file []byte) error {
	values, err := parse(file)
	if err != nil {
		return err
	}
	variables := withPrefix(environ, prefix)
	for _, s := range settings {
		inKey, inFile := values[s.Key()]
		delete(values, s.Key())
		// The value in the file is checked even if it does not count, so that a mistake in it is
		// found.
		fromFile, err := inKey.text(s)
		if err != nil {
			return err
		}
		variable := s.Variable(prefix)
		v, inVariable := variables[variable]
		delete(variables, variable)
		if s.Done {
			continue
		}
		if inVariable {
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
	if len(variables) > 0 {
		return fmt.Errorf("unknown environment variable %s", slices.Sorted(maps.Keys(variables))[0])
	}
	if len(values) > 0 {
		return fmt.Errorf("unknown key %s in the configuration file", slices.Sorted(maps.Keys(values))[0])
	}
	return nil
}

// withPrefix returns the variables that begin with prefix, by their names. It leaves out variables
// that Kubernetes sets in every container for a Service with the prefix as its name.
func withPrefix(environ []string, prefix string) map[string]string {
	out := make(map[string]string)
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		rest, ok := strings.CutPrefix(name, prefix)
		if ok && rest != "PORT" && !strings.HasPrefix(rest, "PORT_") && !strings.HasPrefix(rest, "SERVICE_") {
			out[name] = value
		}
	}
	return out
}

// value is what a key of the file holds. The zero value is an empty scalar.
type value struct{ node *yaml.Node }

// text returns a scalar as it was written, or a list in the form that a flag takes: the items with
// commas between them.
func (v value) text(s Setting) (string, error) {
	switch {
	case v.node == nil, v.node.ShortTag() == nullTag:
		return "", nil
	case v.node.Kind == yaml.ScalarNode:
		return v.node.Value, nil
	case s.Item == nil:
		return "", v.wrong(s, v.node, "one value is wanted")
	case v.node.Kind != yaml.SequenceNode:
		return "", v.wrong(s, v.node, "a list is wanted")
	}
	var items []string
	for _, n := range v.node.Content {
		fields, err := itemOf(n)
		if err != nil {
			return "", v.wrong(s, n, err.Error())
		}
		item, err := s.Item(fields)
		if err != nil {
			return "", v.wrong(s, n, err.Error())
		}
		items = append(items, item)
	}
	return strings.Join(items, ","), nil
}

// wrong returns an error that names the key and the line of the file.
func (value) wrong(s Setting, n *yaml.Node, what string) error {
	return fmt.Errorf("key %s of the configuration file: line %d: %s", s.Key(), n.Line, what)
}

// itemOf reads one item of a list: a mapping of fields, or one value as a field without a name.
func itemOf(n *yaml.Node) (map[string]string, error) {
	if n.Kind == yaml.ScalarNode {
		return map[string]string{"": n.Value}, nil
	}
	return fieldsOf(n)
}

// fieldsOf reads the fields of a mapping, which must be scalars.
func fieldsOf(n *yaml.Node) (map[string]string, error) {
	if n.Kind != yaml.MappingNode {
		return nil, errors.New("a mapping is wanted")
	}
	fields := make(map[string]string)
	for i := 0; i < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if v.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("%s: one value is wanted", k.Value)
		}
		if _, twice := fields[k.Value]; twice {
			return nil, fmt.Errorf("%s: given twice", k.Value)
		}
		fields[k.Value] = v.Value
	}
	return fields, nil
}

// maxFile bounds a file of settings or of embedders, in bytes. A file with all settings has about
// 20 KiB.
const maxFile = 1 << 20

// nullTag is the tag of an absent value in YAML, written as nothing, ~ or null.
const nullTag = "!!null"

// decode reads a file of size bytes that must have exactly one document, or nothing.
func decode(d *yaml.Decoder, size int, into any) error {
	if size > maxFile {
		return fmt.Errorf("it has %d bytes, and must have at most %d", size, maxFile)
	}
	if err := d.Decode(into); errors.Is(err, io.EOF) {
		return nil // it is empty
	} else if err != nil {
		return err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("it must have one YAML document")
	}
	return nil
}

// parse reads the file into its keys and values. A key that is given twice is refused: which one
// counts would be unclear.
func parse(file []byte) (map[string]value, error) {
	values := make(map[string]value)
	if len(file) == 0 {
		return values, nil
	}
	var doc yaml.Node
	if err := decode(yaml.NewDecoder(bytes.NewReader(file)), len(file), &doc); err != nil {
		return nil, fmt.Errorf("read configuration file: %w", err)
	}
	if len(doc.Content) == 0 || doc.Content[0].ShortTag() == nullTag {
		return values, nil
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("read configuration file: line %d: a mapping from keys to values is wanted", root.Line)
	}
	for i := 0; i < len(root.Content); i += 2 {
		k, v := root.Content[i], root.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("read configuration file: line %d: a key must be the name of a setting", k.Line)
		}
		if _, twice := values[k.Value]; twice {
			return nil, fmt.Errorf("key %s of the configuration file: line %d: given twice", k.Value, k.Line)
		}
		values[k.Value] = value{v}
	}
	return values, nil
}
