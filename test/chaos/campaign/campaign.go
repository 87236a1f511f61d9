// Package campaign adds up runs with faults that are too many for one go.
//
// Each piece appends one line to a row's file. Lines of the same code hash add up until the wanted
// count is reached; a change of the code that a row is about starts again at nothing, and what was
// done before stays visible. A violation keeps its row red until a later piece, on other code, has
// passed the seed that failed.
package campaign

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Schema names the form of a line.
const Schema = "millrace.reliability/1"

// Seed is a 64-bit seed, written as 0x and 16 digits.
type Seed uint64

// String returns the seed as it is written.
func (s Seed) String() string { return fmt.Sprintf("0x%016x", uint64(s)) }

// MarshalText returns the seed as it is written.
func (s Seed) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a seed in any base that Go source knows.
func (s *Seed) UnmarshalText(text []byte) error {
	n, err := strconv.ParseUint(string(text), 0, 64)
	if err != nil {
		return fmt.Errorf("seed %q: %w", text, err)
	}
	*s = Seed(n)
	return nil
}

// Run returns the seed of run i of a piece. That of run 0 is the piece's own, so that a piece of
// one run repeats a failure.
func (s Seed) Run(i int) Seed {
	if i == 0 {
		return s
	}
	// splitmix64: neighbouring inputs give unrelated outputs.
	z := uint64(s) + uint64(i)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return Seed(z ^ z>>31)
}

// Line is one piece of a campaign, as a line of the row's file. Lines are only appended.
type Line struct {
	Schema string    `json:"schema"`
	Row    string    `json:"row"`
	Time   time.Time `json:"time"`
	// Code is the hash of the code that the row is about; only lines with the same hash add up.
	Code string `json:"code"`
	// Commit ends with a + when files had changed since.
	Commit string `json:"commit"`
	Seed   Seed   `json:"seed"`
	// Planned and Done are in the row's unit, such as runs or operations.
	Planned int `json:"planned"`
	//
	Done int `json:"done"`
	// Windows counts windows of 5,000 calls at registers, each judged by a search for an order that
	// explains it.
	Windows int `json:"windows,omitempty"`
	// Faults has those that fired, by kind.
	Faults     map[string]int `json:"faults"`
	Violations int            `json:"violations"`
	// Failed has the seeds of the runs with a violation.
	Failed []Seed `json:"failed,omitempty"`
	// Invalid says why the piece proves nothing; empty: it does.
	Invalid string             `json:"invalid,omitempty"`
	Figures map[string]float64 `json:"figures,omitempty"`
	Host    string             `json:"host"`
}

// file returns where the lines of a row are.
func file(dir, row string) string { return filepath.Join(dir, row+".jsonl") }

// Append adds a line to its row's file.
func Append(dir string, l Line) error {
	l.Schema = Schema
	b, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode result: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make results folder: %w", err)
	}
	f, err := os.OpenFile(file(dir, l.Row), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open results: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("append result: %w", err)
	}
	return nil
}

// Read returns the lines of a row, oldest first; none when there is no file. A line of another schema is an error.
func Read(dir, row string) ([]Line, error) {
	b, err := os.ReadFile(file(dir, row))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	var lines []Line
	in := bufio.NewScanner(bytes.NewReader(b))
	in.Buffer(nil, 1<<20)
	for n := 1; in.Scan(); n++ {
		if len(bytes.TrimSpace(in.Bytes())) == 0 {
			continue
		}
		var l Line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("%s line %d: %w", file(dir, row), n, err)
		}
		if l.Schema != Schema || l.Row != row {
			return nil, fmt.Errorf("%s line %d: schema %q row %q", file(dir, row), n, l.Schema, l.Row)
		}
		lines = append(lines, l)
	}
	return lines, in.Err()
}

// Tally is where a row stands on one code.
type Tally struct {
	Row Row
	// Done, Windows, Violations and Faults are sums over the pieces on that code.
	Done int
	//
	Windows int
	//
	Violations int
	//
	Faults int
	// Invalid counts pieces on it that proved nothing. What they did does not count, but what they found does.
	Invalid int
	// Red has seeds that failed and were not passed since, on any code.
	Red []Seed
	// Before is what was done on other code, oldest first.
	Before []Before
}

// Before is what was done on code that has changed since.
type Before struct {
	Code, Commit     string
	Done, Violations int
}

// Count adds up the lines of a row for one code hash.
func Count(row Row, lines []Line, code string) Tally {
	t := Tally{Row: row}
	for i, l := range lines {
		for _, seed := range l.Failed {
			if !passedLater(lines[i+1:], seed, l.Code) {
				t.Red = append(t.Red, seed)
			}
		}
		if l.Code != code {
			t.before(l)
			continue
		}
		t.Violations += l.Violations
		if l.Invalid != "" {
			t.Invalid++
			continue
		}
		t.Done += l.Done
		t.Windows += l.Windows
		for _, n := range l.Faults {
			t.Faults += n
		}
	}
	return t
}

// passedLater reports whether a later piece, on other code, began with the seed that failed and found nothing.
func passedLater(later []Line, seed Seed, failedOn string) bool {
	for _, l := range later {
		if l.Seed == seed && l.Code != failedOn && l.Done > 0 && l.Violations == 0 && l.Invalid == "" {
			return true
		}
	}
	return false
}

// before adds a line of other code. Consecutive lines of the same code are one entry.
func (t *Tally) before(l Line) {
	n := len(t.Before)
	if n == 0 || t.Before[n-1].Code != l.Code {
		t.Before = append(t.Before, Before{Code: l.Code})
		n++
	}
	b := &t.Before[n-1]
	b.Commit = l.Commit
	b.Violations += l.Violations
	if l.Invalid == "" {
		b.Done += l.Done
	}
}

// Pass reports whether nothing that was done broke a promise.
func (t Tally) Pass() bool { return t.Violations == 0 && len(t.Red) == 0 }

// String returns the row's line, and one for each older code and red seed.
func (t Tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s done / %s wanted %s, %d violations", t.Row.ID, thousands(t.Done), thousands(t.Row.Wanted), t.Row.Unit, t.Violations)
	if t.Row.Windows > 0 {
		fmt.Fprintf(&b, ", %s of %s windows", thousands(t.Windows), thousands(t.Row.Windows))
	}
	if t.Invalid > 0 {
		fmt.Fprintf(&b, ", %d invalid pieces", t.Invalid)
	}
	for _, o := range t.Before {
		fmt.Fprintf(&b, "\n  before %s: %s done, %d violations", o.Commit, thousands(o.Done), o.Violations)
	}
	for _, seed := range t.Red {
		fmt.Fprintf(&b, "\n  red until a later change passes SEED=%s", seed)
	}
	return b.String()
}

// thousands prints a number with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
