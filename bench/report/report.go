// Package report renders results for people and for tools: Markdown, HTML, JSON, Go benchmark text, CSV, and a short text for
// a terminal. It also makes the reference page of committed results.
//
// Promised: a renderer is a function of the result alone, so that result.json gives the same bytes again on any machine;
// no rate is printed without its durability, for references too; runs that were left out are shown with their cause.
//
// Elsewhere: what a result means and how verdicts come about (packages bench and bench/tables).
package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/bench"
)

// Names of the files of an output directory. ResultFile is written by package bench; the others are
// made from it.
const (
	// ResultFile is what package bench writes, with all that was measured.
	ResultFile = "result.json"
	// MarkdownFile is the whole report as text.
	MarkdownFile = "report.md"
	// HTMLFile is the same with plots, as one page.
	HTMLFile = "report.html"
	// BenchFile is for benchstat.
	BenchFile = "bench.txt"
	// EnvFile is the machine and the build alone.
	EnvFile = "env.json"
)

// renderers are the formats of Write by name.
var renderers = map[string]func(io.Writer, *bench.Result) error{
	"md": Markdown, "json": JSON, "gobench": GoBench, "csv": CSV, "text": Text, "html": HTML,
}

// Formats lists what Write takes.
func Formats() []string { return []string{"md", "json", "gobench", "csv", "text", "html"} }

// Write renders r in one of Formats.
func Write(w io.Writer, format string, r *bench.Result) error {
	render, ok := renderers[format]
	if !ok {
		return &bench.UsageError{
			Field: "format", Message: fmt.Sprintf("%q must be one of %s", format, strings.Join(Formats(), ", ")),
		}
	}
	return render(w, r)
}

// Render writes report.md, report.html, bench.txt and env.json into dir, each renamed into place. A reader
// finds the old file or the new one whole. On an error the files that came before are already new.
func Render(dir string, r *bench.Result) error {
	// env has no use for the rest of the result.
	env := func(w io.Writer, r *bench.Result) error { return writeJSON(w, r.Env) }
	for _, f := range []struct {
		name   string
		render func(io.Writer, *bench.Result) error
	}{{MarkdownFile, Markdown}, {HTMLFile, HTML}, {BenchFile, GoBench}, {EnvFile, env}} {
		var b bytes.Buffer
		if err := f.render(&b, r); err != nil {
			return fmt.Errorf("render %s: %w", f.name, err)
		}
		// A reader never sees a part of a file, because the name is given to it when it is whole.
		path := filepath.Join(dir, f.name)
		if err := os.WriteFile(path+".tmp", b.Bytes(), 0o644); err != nil {
			return err
		}
		if err := os.Rename(path+".tmp", path); err != nil {
			return errors.Join(err, os.Remove(path+".tmp"))
		}
	}
	return nil
}

// JSON writes the result as result.json holds it.
func JSON(w io.Writer, r *bench.Result) error { return writeJSON(w, r) }

// writeJSON writes v with the indentation of result.json, and leaves <, > and & as they are.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
