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

// processes is a server on this host with all that it started, found by where it listens. Zero: it is elsewhere, or the
// host does not tell.
type processes struct{ root int }

// spent is what processes have used so far.
type spent struct {
	cpu    float64 // seconds
	memory float64 // bytes, shared ones once
}

const ticksPerSecond = 100 // of /proc/PID/stat, on every architecture that Go supports

// listening finds who listens at host:port.
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

// listener returns the inode of the socket that listens on a port, or nothing.
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
	written float64 // bytes
	flushed float64 // how often they were told to make what they hold durable
}

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
