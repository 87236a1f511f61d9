// Command faultfs mounts a file system that loses power on purpose, and does what slow, broken and full disks do. What is
// on it after a power cut is what package disk says.
//
//	faultfs -store DIR -mount DIR
//
// It begins empty. The folder of -store has the bytes meanwhile; at the end everything is moved into the mount point, which
// is a plain folder then. It runs on Linux, by root, since it mounts without a helper.
//
// It says {} when it is mounted, and then reads commands from its input, one JSON object a line, each answered by one:
//
//	{"do":"rules","rules":[{"kinds":["sync"],"delay_ms":100}]}  slow, hanging and failing calls: see disk.Rule; none heals
//	{"do":"freeze"}                                             all calls wait: the processes can be killed
//	{"do":"cut","seed":7,"share":30}                            cuts the power, leaves 30 % of what was not synced, mounts again
//	{"do":"calls"}                                              counts calls
//	{"do":"end"}                                                unmounts and ends, as it does when its input ends
//
// An answer has "error" if the command failed.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/millrace/millrace/test/faultfs/disk"
)

func main() {
	store := flag.String("store", "", "folder of the bytes")
	mount := flag.String("mount", "", "where to mount: an empty folder")
	flag.Parse()
	signal.Ignore(os.Interrupt, syscall.SIGTERM) // the process that started it ends it, when the files are not used any more
	if err := run(*store, *mount, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "faultfs:", err)
		os.Exit(1)
	}
}

// command is one line of input, and answer the line that follows it.
type command struct {
	Do    string      `json:"do"`
	Rules []disk.Rule `json:"rules"`
	Seed  uint64      `json:"seed"`
	Share int         `json:"share"`
}

type answer struct {
	Error string      `json:"error,omitempty"`
	Cut   *disk.Cut   `json:"cut,omitempty"`
	Calls *disk.Calls `json:"calls,omitempty"`
}

// run mounts, serves, and unmounts at the end whatever happened before.
func run(store, mount string, in io.Reader, out io.Writer) error {
	if store == "" || mount == "" {
		return errors.New("-store and -mount are required")
	}
	d, err := disk.New(store)
	if err != nil {
		return err
	}
	m := &mounted{d: d, at: mount}
	if err := m.up(); err != nil {
		return err
	}
	err = m.serve(in, json.NewEncoder(out))
	return errors.Join(err, m.end())
}

// serve does what it is told until it is told to end, or its input ends. A command that fails is
// answered with its error; a line that is not a command ends it.
func (m *mounted) serve(in io.Reader, out *json.Encoder) error {
	if err := out.Encode(answer{}); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var c command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return fmt.Errorf("command %q: %w", lines.Bytes(), err)
		}
		if c.Do == "end" {
			return nil
		}
		a, err := m.do(c)
		if err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	return lines.Err()
}

// do carries out one command. A cut ends the mount and makes a new one, since the kernel's cache
// must not outlive the power.
func (m *mounted) do(c command) (a answer, err error) {
	switch c.Do {
	case "rules":
		return a, m.d.SetRules(c.Rules)
	case "freeze":
		m.d.Freeze()
		return a, nil
	case "calls":
		calls := m.d.Calls()
		a.Calls = &calls
		return a, nil
	case "cut":
		cut, err := m.d.Cut(c.Seed, c.Share)
		if err == nil {
			err = m.down()
		}
		if err == nil {
			err = m.up()
		}
		a.Cut = &cut
		return a, err
	}
	return a, fmt.Errorf("no command %q", c.Do)
}

// end unmounts, and leaves in place of the mount what was on it.
func (m *mounted) end() error {
	m.d.Shut()
	if err := m.down(); err != nil {
		return err
	}
	return m.d.Export(m.at)
}
