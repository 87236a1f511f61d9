package server

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/gitobj"
	"github.com/millrace/millrace/internal/machine/refs"
)

// GitExamined is what was found of git repositories: how many have objects, and their packs with
// sizes in bytes.
type GitExamined struct {
	// Repositories is the number of repositories that have objects.
	Repositories int `json:"repositories"`
	// Packs is the number of their packs, and Bytes the sum of their sizes.
	Packs int   `json:"packs"`
	Bytes int64 `json:"bytes"`
}

// maxPackTexts bounds how many findings, and how many warnings, about packs are spelled out.
const maxPackTexts = 100

// repositories reads all packs of a partition's repositories and compares them with their
// checksums. A missing pack is damage if this is the only node; in a cluster it is a warning,
// because another node has the pack.
func (x *Examination) repositories(id core.ShardID, p core.Partition, v core.View) error {
	last := core.RepoID{}
	return refs.EachPack(v, p, func(repo core.RepoID, line core.PackLine) error {
		if repo != last {
			last = repo
			x.Git.Repositories++
		}
		x.Git.Packs++
		x.Git.Bytes += line.Bytes + line.IdxBytes
		missing, err := x.packs.Check(gitobj.Place{Shard: id, Partition: p, Repo: repo}, line.Pack)
		damaged, is := errors.AsType[*gitobj.DamagedError](err)
		switch {
		case is:
			x.Findings = listed(x.Findings, fmt.Sprintf("repository %s of shard %d: git/%s: %s", repo, id, damaged.File, damaged.What))
		case err != nil:
			return err
		case missing && x.hasOthers():
			x.Warnings = listed(x.Warnings, fmt.Sprintf("repository %s of shard %d: pack %s is missing here; it comes from another node", repo, id, line.Digest))
		case missing:
			x.Findings = listed(x.Findings, fmt.Sprintf("repository %s of shard %d: pack %s is missing", repo, id, line.Digest))
		}
		return nil
	})
}

// hasOthers reports whether the directory belongs to one of several nodes.
func (x *Examination) hasOthers() bool {
	return x.Member != nil && x.Member.Cluster != "" && (len(x.Member.Nodes) > 1 || x.Member.Joined || len(x.Members) > 1)
}

// listed appends a text about a pack. Of more than maxPackTexts texts it notes only that there are
// more.
func listed(list []string, text string) []string {
	switch {
	case len(list) < maxPackTexts:
		return append(list, text)
	case len(list) == maxPackTexts:
		return append(list, "and more packs, which are not named")
	}
	return list
}
