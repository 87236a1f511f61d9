package refs

import (
	"slices"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// usualHeads are names that the main branch probably has. They decide between branches that were
// made in one transaction.
var usualHeads = []string{"refs/heads/main", "refs/heads/master", "refs/heads/trunk"}

// Head returns where HEAD leads a client that clones: to what it points to or, as long as that is not there,
// to the branch that was made first. Of several branches that one transaction made it is the one with a usual
// name, else the first in byte order. Without any branch HEAD stays where it points. Branches that the
// settings hide do not count. It is a function of the state alone, so every replica says the same, whichever
// way branches came. Where the target is missing it reads all branches.
func Head(v core.View, p core.Partition, info *core.RepoInfo) (string, error) {
	if info.Head == "" {
		return "", nil
	}
	// Where the target exists there is nothing to choose.
	_, ok, err := Resolve(v, p, info.ID, core.Ref{Name: "HEAD", Target: info.Head})
	if err != nil || ok {
		return info.Head, err
	}
	// made is the number of the first record of the best branch so far: numbers are revisions, so a smaller one is
	// earlier.
	best, made, rank := info.Head, ^uint64(0), 0
	from, to := keys.Refs(p, info.ID, "refs/heads/")
	err = core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		name, ok := keys.RefOf(key)
		r, err := decodeRow(value)
		switch {
		case !ok || err != nil:
			return false, errs.Corruptf("ref %q of repository %s: %x", name, info.ID, value)
		// Symbolic branches are passed over: what they point to is looked at itself.
		case r.symbolic() || r.first > made || matchAny(info.Config.Hide, string(name)):
			return true, nil
		}
		of := slices.Index(usualHeads, string(name))
		if of < 0 {
			of = len(usualHeads)
		}
		// Within the same revision the rank decides; for equal ranks the first in byte order stays.
		if r.first < made || of < rank {
			best, made, rank = string(name), r.first, of
		}
		return true, nil
	})
	return best, err
}
