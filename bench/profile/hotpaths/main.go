// Command hotpaths merges profiles of the CPU into one that a build is optimised by.
//
//	hotpaths -o FILE DIR...
//
// It reads every file cpu.pb.gz in the directories and below, as `millrace bench run` leaves them. Of each it keeps which functions
// called which from which line, and how often; addresses, labels and the path of the program that was measured are left out.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	pb "github.com/google/pprof/profile"

	"github.com/millrace/millrace/bench/profile"
)

// profileName is the name of the files that are read.
const profileName = string(profile.CPU) + profile.FileSuffix

// main exits with 1 if a profile cannot be read or there is none.
func main() {
	out := flag.String("o", "", "file to write")
	flag.Parse()
	if err := run(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "hotpaths:", err)
		os.Exit(1)
	}
}

// run writes the profiles below dirs to out, as one.
func run(out string, dirs []string) error {
	if out == "" {
		return errors.New("-o is required")
	}
	var found []*pb.Profile
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.Name() != profileName {
				return err
			}
			p, err := read(path)
			found = append(found, p)
			return err
		})
		if err != nil {
			return err
		}
	}
	if len(found) == 0 {
		return fmt.Errorf("no %s in %q", profileName, dirs)
	}
	merged, err := pb.Merge(found)
	if err != nil {
		return fmt.Errorf("merge %d profiles: %w", len(found), err)
	}
	merged.TimeNanos, merged.DurationNanos = 0, 0
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(merged.Write(f), f.Close())
}

// read returns a profile without what belongs to one program or machine.
func read(path string) (*pb.Profile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	p, err := pb.Parse(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, l := range p.Location {
		l.Address, l.Mapping = 0, nil
	}
	for _, s := range p.Sample {
		s.Label, s.NumLabel, s.NumUnit = nil, nil, nil
	}
	p.Mapping, p.Comments = nil, nil
	return p, nil
}
