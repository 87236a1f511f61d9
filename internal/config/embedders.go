package config

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Embedder is an embedder as the operator's file describes it. Zero values mean the defaults of
// package embed.
type Embedder struct {
	Name string `yaml:"name"` // as collections name it; default names the one that they get without
	Kind string `yaml:"kind"` // lexical, ollama, openai, tei, none
	// URL is where the provider is asked, and Model the name that it knows its model by.
	URL   string `yaml:"url"`
	Model string `yaml:"model"`
	// Dim is the length of its vectors.
	Dim     int    `yaml:"dim"`
	KeyEnv  string `yaml:"key_env"`  // environment variable that holds the key
	KeyFile string `yaml:"key_file"` // or file
	// QueryPrefix and DocumentPrefix are put before the texts, as some models want it.
	QueryPrefix    string        `yaml:"query_prefix"`
	DocumentPrefix string        `yaml:"document_prefix"`
	MaxText        int           `yaml:"max_text"` // bytes
	Timeout        time.Duration `yaml:"timeout"`
	// InFlight is how many requests are under way at once, and Waiting how many wait for that.
	InFlight int `yaml:"in_flight"`
	Waiting  int `yaml:"waiting"`
	// Batch is how many texts one request has.
	Batch int `yaml:"batch"`

	Key string `yaml:"-"` // what these hold; set by the code that opens the embedder
}

// maxEmbedders bounds the embedders of a server, because each may hold connections open.
const maxEmbedders = 32

// DefaultEmbedder is the name of the embedder for collections that name none. If the file has no
// embedder of this name, it is the built-in one.
const DefaultEmbedder = "default"

// ParseEmbedders reads a file of embedders. It refuses unknown fields, missing and repeated names,
// and a key that is given in two ways.
func ParseEmbedders(content []byte) ([]Embedder, error) {
	var doc struct {
		Embedders []Embedder `yaml:"embedders"`
	}
	d := yaml.NewDecoder(bytes.NewReader(content))
	d.KnownFields(true)
	if err := decode(d, len(content), &doc); err != nil {
		return nil, fmt.Errorf("read embedders: %w", err)
	}
	if len(doc.Embedders) > maxEmbedders {
		return nil, fmt.Errorf("embedders: at most %d", maxEmbedders)
	}
	seen := make(map[string]bool)
	for i := range doc.Embedders {
		e := &doc.Embedders[i]
		switch {
		// Names are parts of paths and of lists, so some characters are not allowed.
		case e.Name == "" || len(e.Name) > 128 || strings.ContainsAny(e.Name, "/ \t\n"):
			return nil, fmt.Errorf("embedders[%d].name: is missing, or holds a space or a slash", i)
		case seen[e.Name]:
			return nil, fmt.Errorf("embedders[%d].name: %s is taken", i, e.Name)
		case e.KeyEnv != "" && e.KeyFile != "":
			return nil, fmt.Errorf("embedders[%d]: key_env and key_file are both given", i)
		}
		seen[e.Name] = true
	}
	return doc.Embedders, nil
}
