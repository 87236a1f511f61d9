package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// processes is a server on this host with all that it started, found by where it listens. root is the id of the
// server's process; 0: the server is on another host, or this host does not tell.
type processes struct{ root int }

// spent is what processes have used so far.
type spent struct {
	// cpu is in seconds.
	cpu float64
	// memory is in bytes. Pages that several processes share count once.
	memory float64
}

// ticksPerSecond is the unit of times in /proc/PID/stat, on every architecture that Go supports.
const ticksPerSecond = 100

// listening finds the process that listens at host:port. It looks at the port alone, so an address of another host must
// not have a port that is in use here.
func listening(address string) processes {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return processes{}
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return processes{}
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if inode := listener(table, n); inode != "" {
			return processes{root: holder("socket:[" + inode + "]")}
		}
	}
	return processes{}
}

// listener returns the inode of the socket that listens on a port, or nothing. table is /proc/net/tcp or tcp6, whose
// second field is the local address, fourth the state and tenth the inode.
func listener(table string, port int) string {
	b, err := os.ReadFile(table)
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(string(b), "\n") {
		f := strings.Fields(line)
		const listen = "0A"
		if len(f) > 9 && f[3] == listen && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
			return f[9]
		}
	}
	return ""
}

// holder returns the process that has a file open: the lowest id, which is the parent where children share it.
func holder(link string) int {
	found := 0
	files, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0
	}
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && to == link {
			if pid, err := strconv.Atoi(strings.Split(f, "/")[2]); err == nil && (found == 0 || pid < found) {
				found = pid
			}
		}
	}
	return found
}

// all lists the processes: the root, and what descends from it.
func (p processes) all() []int {
	if p.root == 0 {
		return nil
	}
	// parents has the children of each process by the id of their parent. Processes come and go meanwhile: one that is
	// gone is left out.
	parents := map[int][]int{}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil {
			continue
		}
		if f := stat(pid); f != nil {
			parent, _ := strconv.Atoi(f[1]) // a kernel that writes something else has no children for us
			parents[parent] = append(parents[parent], pid)
		}
	}
	out := []int{p.root}
	// out grows while it is walked, so that children of children are found too.
	for i := 0; i < len(out); i++ {
		out = append(out, parents[out[i]]...)
	}
	return out
}

// stat returns the fields of /proc/PID/stat after the name, or nil.
func stat(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	// The name is in brackets and may have a bracket or a space itself, so fields are counted from the last bracket.
	i := bytes.LastIndexByte(b, ')')
	f := strings.Fields(string(b[i+1:]))
	if i < 0 || len(f) < 16 {
		return nil
	}
	return f
}

// used adds up what all of them used, those that have ended and were waited for too.
func (p processes) used() (u spent) {
	for _, pid := range p.all() {
		if f := stat(pid); f != nil {
			for _, field := range f[11:15] { // user, system, and those of children that have ended
				n, _ := strconv.ParseFloat(field, 64)
				u.cpu += n / ticksPerSecond
			}
		}
		u.memory += 1024 * labelled(fmt.Sprintf("/proc/%d/smaps_rollup", pid), "Pss:")
	}
	return u
}

// labelled reads the number after a label at the beginning of a line; 0 where there is none.
func labelled(file, label string) float64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == label {
			n, _ := strconv.ParseFloat(f[1], 64)
			return n
		}
	}
	return 0
}

// diskUse is what the disks of this host did so far, for all processes. The bytes that a process is charged for do not
// measure it: a write to one page is charged as the whole folio that the page lies in.
type diskUse struct {
	// written is in bytes.
	written float64
	// flushed is how often the disks were told to make what they hold durable.
	flushed float64
}

// disks reads /proc/diskstats. It counts whole disks alone: partitions, loop devices and mapped devices would count a
// write twice. Zero: the host has no such file.
func disks() (u diskUse) {
	f, err := os.Open("/proc/diskstats")
	if err != nil {
		return u
	}
	defer f.Close() //nolint:errcheck // it was only read
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		const sectors, flushed, sectorBytes = 9, 18, 512
		if len(fields) <= flushed || strings.HasPrefix(fields[2], "loop") || strings.HasPrefix(fields[2], "dm-") {
			continue // what lies on a disk is counted there
		}
		if _, err := os.Stat("/sys/class/block/" + fields[2] + "/partition"); err == nil {
			continue
		}
		n, _ := strconv.ParseFloat(fields[sectors], 64)
		u.written += n * sectorBytes
		n, _ = strconv.ParseFloat(fields[flushed], 64)
		u.flushed += n
	}
	return u
}
