package proc

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Group is a control group whose processes together have no more memory than a limit: beyond it the
// kernel ends one of them.
type Group struct {
	dir   string
	files groupFiles
}

// groupFiles names what a version of control groups calls its files.
type groupFiles struct {
	// limit and swap are the files with the limits of memory, and of memory and swap.
	limit, swap string
	// kills is the file with the number of processes that were ended, and killed the name of that
	// number in it.
	kills, killed string
	// anon is the name in memory.stat of what is not a cache of files.
	anon string
}

// groups1 and groups2 are the files of both versions of control groups.
var (
	groups1 = groupFiles{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control", "oom_kill", "total_rss"}
	groups2 = groupFiles{"memory.max", "memory.swap.max", "memory.events", "oom_kill", "anon"}
)

// NewGroup makes a group below that of this process, or below the nearest group above it that hands
// memory on to its groups. limit is in bytes. The error says why there can be no group here.
func NewGroup(limit int64) (*Group, error) {
	parent, files, err := groupParent()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(parent, "millrace-chaos-")
	if err != nil {
		return nil, fmt.Errorf("make a control group: %w", err)
	}
	g := &Group{dir, files}
	if err := g.write(files.limit, limit); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	if files == groups2 {
		limit = 0 // of swap alone
	}
	_ = g.write(files.swap, limit) // where there is swap: else there is no such file
	return g, nil
}

// groupParent finds where a group can be made, and which files it has.
func groupParent() (dir string, files groupFiles, err error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", files, fmt.Errorf("this system has no control groups: %w", err)
	}
	for line := range strings.Lines(string(own)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		if slices.Contains(strings.Split(part[1], ","), "memory") { // version 1
			dir = filepath.Join("/sys/fs/cgroup/memory", part[2])
			if _, err := os.Stat(filepath.Join(dir, groups1.limit)); err == nil {
				return dir, groups1, nil
			}
		}
		if part[0] != "0" {
			continue
		}
		for at := part[2]; ; at = filepath.Dir(at) {
			dir = filepath.Join("/sys/fs/cgroup", at)
			handed, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
			if err == nil && slices.Contains(strings.Fields(string(handed)), "memory") {
				return dir, groups2, nil
			}
			if at == "/" || at == "." {
				break
			}
		}
	}
	return "", files, errors.New("no control group above this process hands memory on to groups below it")
}

// write sets one limit.
func (g *Group) write(file string, n int64) error {
	if err := os.WriteFile(filepath.Join(g.dir, file), strconv.AppendInt(nil, n, 10), 0o600); err != nil {
		return fmt.Errorf("set up a control group: %w", err)
	}
	return nil
}

// Kills returns how many processes the system has ended because the group had no more memory.
func (g *Group) Kills() (int64, error) { return g.count(g.files.kills, g.files.killed) }

// Anonymous returns the memory that the group's processes have now, without what is only a cache of files.
func (g *Group) Anonymous() (int64, error) { return g.count("memory.stat", g.files.anon) }

// count reads one number out of a file of names and numbers.
func (g *Group) count(file, name string) (int64, error) {
	f, err := os.Open(filepath.Join(g.dir, file))
	if err != nil {
		return 0, fmt.Errorf("read a control group: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	for in := bufio.NewScanner(f); in.Scan(); {
		if key, value, _ := strings.Cut(in.Text(), " "); key == name {
			return strconv.ParseInt(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("read a control group: %s tells no %s", file, name)
}

// Close removes the group. Its processes must have ended.
func (g *Group) Close() error { return os.Remove(g.dir) }

// enter returns the command of a shell that joins the group and then becomes the program.
func (g *Group) enter(program string, args []string) []string {
	return append([]string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(g.dir, "cgroup.procs"), program}, args...)
}
