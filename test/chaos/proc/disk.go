package proc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// NotRunError says why a row cannot be run on this machine.
type NotRunError struct{ Reason string }

func (e NotRunError) Error() string { return "not run: " + e.Reason }

// BuildDisk compiles the file system that loses power on purpose, which is a module of its own.
func BuildDisk(ctx context.Context, root, dir string) (string, error) {
	path := filepath.Join(dir, "faultfs")
	return path, compile(ctx, filepath.Join(root, "test", "faultfs"), path, "", ".")
}

// Disk is a mounted file system on which a server's data can lie, whose faults are made by command.
// The program is test/faultfs; commands and answers are lines of JSON.
type Disk struct {
	// At is the mount point. After Close it is a plain folder with what was last on the disk.
	At string

	cmd *exec.Cmd
	log *os.File

	mu  sync.Mutex // guards the fields below: one command at a time
	in  io.WriteCloser
	out *bufio.Scanner
}

// DiskRule is what happens to calls of some kinds (read, write, grow, sync, name); no kinds mean
// all. It has the form that the program reads.
type DiskRule struct {
	Kinds []string `json:"kinds,omitempty"`
	// Skip is the number of calls that pass before the first one that it is about, and Times the
	// number of those; 0: all.
	Skip int `json:"skip,omitempty"`
	//
	Times int           `json:"times,omitempty"`
	Delay time.Duration `json:"-"`
	// Hang holds calls until there are other rules.
	Hang bool `json:"hang,omitempty"`
	// Error is EIO or ENOSPC.
	Error string `json:"error,omitempty"`
	// Short makes writes write half.
	Short bool `json:"short,omitempty"`

	// DelayMS is Delay as the program reads it.
	DelayMS int64 `json:"delay_ms,omitempty"`
}

// DiskCut is what a power cut took, and what of the rest it left.
type DiskCut struct {
	SectorsLost int `json:"sectors_lost"`
	SectorsKept int `json:"sectors_kept"`
	NamesLost   int `json:"names_lost"`
	NamesKept   int `json:"names_kept"`
}

// DiskCalls counts calls since the beginning, by what the rules did to them.
type DiskCalls struct {
	Syncs   int `json:"syncs"`
	Delayed int `json:"delayed"`
	Held    int `json:"held"`
	Failed  int `json:"failed"`
	// Wrote is the name of the file that the last failed write was to.
	Wrote string `json:"wrote"`
	Short int    `json:"short"`
	// Waiting is the number of calls that are held just now.
	Waiting int `json:"waiting"`
}

// diskCommand is one command, and diskAnswer what the program answers. Error is empty when it did
// what it was told.
type diskCommand struct {
	Do    string     `json:"do"`
	Rules []DiskRule `json:"rules,omitempty"`
	Seed  uint64     `json:"seed,omitempty"`
	Share int        `json:"share,omitempty"`
}

type diskAnswer struct {
	Error string     `json:"error"`
	Cut   *DiskCut   `json:"cut"`
	Calls *DiskCalls `json:"calls"`
}

// OpenDisk makes an empty disk below dir and mounts it. The error is a NotRunError where nothing
// can be mounted.
func OpenDisk(binary, dir string) (*Disk, error) {
	if err := mountable(); err != nil {
		return nil, err
	}
	d := &Disk{At: filepath.Join(dir, "disk")}
	if err := os.MkdirAll(d.At, 0o700); err != nil {
		return nil, fmt.Errorf("make mount point: %w", err)
	}
	var err error
	if d.log, err = os.OpenFile(filepath.Join(dir, "disk.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return nil, fmt.Errorf("open log of disk: %w", err)
	}
	d.cmd = exec.Command(binary, "-store", filepath.Join(dir, "disk.store"), "-mount", d.At)
	d.cmd.Stderr = d.log
	if d.in, err = d.cmd.StdinPipe(); err != nil { // it unmounts and ends when this is closed, also by the end of this process
		return nil, fmt.Errorf("start disk: %w", err)
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start disk: %w", err)
	}
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start disk: %w", err)
	}
	d.out = bufio.NewScanner(out)
	if _, err := d.answer(); err != nil {
		return nil, errors.Join(fmt.Errorf("mount disk: %w, see %s", err, d.log.Name()), d.Close())
	}
	return d, nil
}

// mountable says why nothing can be mounted here; nil: it can.
func mountable() error {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return NotRunError{"mounting takes Linux and root"}
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return NotRunError{err.Error()}
	}
	return f.Close()
}

// do sends one command and waits for its answer. Commands are never under way at once.
func (d *Disk) do(c diskCommand) (a diskAnswer, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	line, err := json.Marshal(c)
	if err != nil {
		return a, fmt.Errorf("disk: %w", err)
	}
	if _, err := d.in.Write(append(line, '\n')); err != nil {
		return a, fmt.Errorf("disk: %s: %w", c.Do, err)
	}
	if a, err = d.answer(); err != nil {
		return a, fmt.Errorf("disk: %s: %w", c.Do, err)
	}
	return a, nil
}

// answer reads one answer. The end of the program is an error.
func (d *Disk) answer() (a diskAnswer, err error) {
	if !d.out.Scan() {
		return a, errors.Join(errors.New("it ended"), d.out.Err())
	}
	if err := json.Unmarshal(d.out.Bytes(), &a); err != nil {
		return a, fmt.Errorf("unexpected answer %q: %w", d.out.Bytes(), err)
	}
	if a.Error != "" {
		err = errors.New(a.Error)
	}
	return a, err
}

// Rules replaces what happens to calls. Without any rule the disk is a good one, and calls that hung go on.
func (d *Disk) Rules(rules ...DiskRule) error {
	for i := range rules {
		rules[i].DelayMS = rules[i].Delay.Milliseconds()
	}
	_, err := d.do(diskCommand{Do: "rules", Rules: rules})
	return err
}

// Freeze holds all calls until Cut, so that a process which waits for one can be killed before its
// call has an effect.
func (d *Disk) Freeze() error {
	_, err := d.do(diskCommand{Do: "freeze"})
	return err
}

// Cut takes away what was not synced, except a share of it in percent, drawn from a seed, and gives
// the disk its power back. Processes that use it must have been sent SIGKILL before.
func (d *Disk) Cut(seed uint64, share int) (DiskCut, error) {
	a, err := d.do(diskCommand{Do: "cut", Seed: seed, Share: share})
	if err != nil || a.Cut == nil {
		return DiskCut{}, err
	}
	return *a.Cut, nil
}

// Calls counts calls.
func (d *Disk) Calls() (DiskCalls, error) {
	a, err := d.do(diskCommand{Do: "calls"})
	if err != nil || a.Calls == nil {
		return DiskCalls{}, err
	}
	return *a.Calls, nil
}

// Close unmounts the disk, once it is not used any more. Calls that hang fail.
func (d *Disk) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.in.Close()
	for d.out.Scan() { // to its end
	}
	return errors.Join(err, d.cmd.Wait(), d.log.Close())
}

// CutPower cuts the power of servers, each with a disk of its own, at one instant. The order makes
// it one: nothing reaches a disk once it is frozen, no server does anything once it was killed, and
// then the disks lose what was not synced. lose is called for each disk. A server that had ended by
// itself is an error.
func CutPower(lose func(d *Disk) error, servers ...*Server) (err error) {
	for _, s := range servers {
		err = errors.Join(err, s.o.Disk.Freeze())
	}
	for _, s := range servers {
		if !s.strike() {
			err = errors.Join(err, fmt.Errorf("the server ended by itself, see %s", s.LogFile()))
		}
	}
	for _, s := range servers {
		err = errors.Join(err, lose(s.o.Disk))
		s.Kill() // it is about to be gone, since the disk has answered what held it
	}
	return err
}
