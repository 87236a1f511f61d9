package check

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/core"
)

// repos is what a partition knows of repositories, by id. One that is changed is copied first, so that a commit which is
// refused in the end is forgotten by putting the old one back.
type repos map[core.RepoID]*repository

// repository keeps refs in plain maps and decides by looking at all of them.
type repository struct {
	name    string
	config  core.RepoConfig // with defaults
	ids     map[string]core.ObjectID
	targets map[string]string // of symbolic refs
	packs   map[core.Digest]int64
	rev     uint64
	deleted core.ShardTime // 0: it is not
}

const (
	keepDeletedRepo = core.Millis(7 * 24 * 3_600_000)
	keepStagedPack  = core.Millis(30 * 60_000)
	maxSymrefs      = 5
)

func (r *repository) clone() *repository {
	c := *r
	c.ids, c.targets, c.packs = maps.Clone(r.ids), maps.Clone(r.targets), maps.Clone(r.packs)
	return &c
}

// live finds a repository by name.
func (p *part) live(name string) (core.RepoID, *repository) {
	for id, r := range p.repos {
		if r.name == name && r.deleted == 0 {
			return id, r
		}
	}
	return core.RepoID{}, nil
}

func ofRefs(op core.Op) bool { return repoNamed(op) != nil }

// repoNamed is the repository that an op is about.
func repoNamed(op core.Op) *string {
	switch op := op.(type) {
	case *core.RefTxn:
		return &op.Repo
	case *core.RepoCreate:
		return &op.Name
	case *core.RepoSet:
		return &op.Name
	case *core.RepoDelete:
		return &op.Name
	case *core.RepoUndelete:
		return &op.Name
	case *core.PackSwap:
		return &op.Repo
	}
	return nil
}

// repoTwice is the first op that is about a repository which an earlier one is about, or -1.
func repoTwice(c *core.Commit) int {
	seen := map[string]bool{}
	for i, op := range c.Ops {
		name := repoNamed(op)
		if name == nil {
			continue
		}
		if seen[*name] {
			return i
		}
		seen[*name] = true
	}
	return -1
}

// crowdedRefs is the place of a transaction of changes that stand alone, in a commit with something else; -1 if none is.
func crowdedRefs(c *core.Commit) int {
	return slices.IndexFunc(c.Ops, func(op core.Op) bool {
		txn, ok := op.(*core.RefTxn)
		return ok && txn.Partial && (len(c.Ops) > 1 || c.Fence != nil || len(c.Conditions) > 0)
	})
}

func (m *Model) refsOp(p *part, c *core.Commit, op core.Op, a answer) error {
	if f, ok := a.fact.(core.Exhausted); ok && f.Max > 0 {
		return nil // a count is reached: how many there may be is an option of the machine
	}
	id, r := p.live(*repoNamed(op))
	switch op := op.(type) {
	case *core.RefTxn:
		return m.refTxn(p, c, op, a, id, r)
	case *core.RepoCreate:
		return m.repoCreate(p, op, a, id, r)
	case *core.RepoSet:
		return m.repoSet(p, op, a, id, r)
	case *core.RepoDelete:
		if want := repoAsked(op.Name, r, op.IfVersion); want != nil || a.fact != nil {
			return judgeRepo(want, a)
		}
		next := r.clone()
		next.deleted = max(m.stamp, 1)
		set(m, p.repos, id, next)
		return nil
	case *core.RepoUndelete:
		return m.repoUndelete(p, op, a, r)
	case *core.PackSwap:
		return m.packSwap(p, op, a, id, r)
	}
	return fmt.Errorf("%T is not an op of refs", op)
}

// repoRefused is the refusal of a repository as a whole.
func repoRefused(name string, reason core.RefReason) core.Fact {
	return core.RefRefused{Repo: name, Failures: []core.RefFailure{{Change: -1, Reason: reason}}}
}

// judgeRepo compares a refusal of a repository as a whole.
func judgeRepo(want core.Fact, a answer) error {
	w, ok := want.(core.RefRefused)
	g, also := a.fact.(core.RefRefused)
	if ok && also && g.Repo == w.Repo && len(g.Failures) == 1 && g.Failures[0].Change == -1 && g.Failures[0].Reason == w.Failures[0].Reason {
		return nil
	}
	return judgeFact(want, a)
}

// repoAsked is why an op on a repository at a version is refused.
func repoAsked(name string, r *repository, version int64) core.Fact {
	switch {
	case r == nil:
		return repoRefused(name, core.RefRepoNotFound)
	case version >= 0 && uint64(version) != r.config.Version:
		return core.RevMismatch{Rev: r.config.Version}
	}
	return nil
}

func (m *Model) repoCreate(p *part, op *core.RepoCreate, a answer, id core.RepoID, live *repository) error {
	branch := op.Branch
	if branch == "" {
		branch = "main"
	}
	_, taken := p.repos[op.ID]
	switch {
	case oddRepo(op.Name) || op.ID.IsZero() || badRef("refs/heads/"+branch) || oddConfig(&op.Config) || len(op.Tag) > 128:
		return judgeOdd(op, a)
	case live != nil && id == op.ID:
		if a.fact != nil || !a.blind && !a.result.Replayed {
			return fmt.Errorf("repository %q was made before under this id: answered %s", op.Name, a)
		}
		return nil
	case live != nil:
		return judgeRepo(repoRefused(op.Name, core.RefRepoExists), a)
	case taken:
		if _, ok := a.fact.(core.AlreadyExists); ok {
			return nil
		}
		if p.repos[op.ID].deleted == 0 || m.stamp < p.repos[op.ID].deleted.Add(keepDeletedRepo) {
			return fmt.Errorf("id %s is taken: answered %s", op.ID, a)
		}
	}
	if a.fact != nil {
		return judgeFact(nil, a)
	}
	next := &repository{
		name: op.Name, config: op.Config.WithDefaults(), ids: map[string]core.ObjectID{}, packs: map[core.Digest]int64{},
		targets: map[string]string{"HEAD": "refs/heads/" + branch},
	}
	next.config.Version = 1
	set(m, p.repos, op.ID, next)
	return nil
}

func (m *Model) repoSet(p *part, op *core.RepoSet, a answer, id core.RepoID, r *repository) error {
	if oddConfig(&op.Config) || op.Branch != "" && badRef("refs/heads/"+op.Branch) {
		return judgeOdd(op, a)
	}
	if want := repoAsked(op.Name, r, op.IfVersion); want != nil || a.fact != nil {
		return judgeRepo(want, a)
	}
	next := r.clone()
	next.config = op.Config.WithDefaults()
	next.config.Version = r.config.Version
	head := op.Branch != "" && r.targets["HEAD"] != "refs/heads/"+op.Branch
	if head {
		delete(next.ids, "HEAD")
		next.targets["HEAD"] = "refs/heads/" + op.Branch
		next.rev++
	}
	if head || !sameRepoConfig(next.config, r.config) {
		next.config.Version++
	}
	if !a.blind && a.result.Version != next.config.Version {
		return fmt.Errorf("settings of %q are at version %d, answered %d", op.Name, next.config.Version, a.result.Version)
	}
	set(m, p.repos, id, next)
	return nil
}

func sameRepoConfig(a, b core.RepoConfig) bool {
	a.Version, b.Version = 0, 0
	return len(a.Hide) == len(b.Hide) && len(a.Rules) == len(b.Rules) &&
		(len(a.Hide) == 0 || reflect.DeepEqual(a.Hide, b.Hide)) && (len(a.Rules) == 0 || reflect.DeepEqual(a.Rules, b.Rules)) &&
		a.State == b.State && a.ReflogDays == b.ReflogDays && a.ReflogMax == b.ReflogMax && a.MaxBytes == b.MaxBytes && a.MaxPush == b.MaxPush
}

// repoUndelete: the one of the id, or the one that was deleted last. One whose time is over may be gone.
func (m *Model) repoUndelete(p *part, op *core.RepoUndelete, a answer, live *repository) error {
	if live != nil {
		return judgeRepo(repoRefused(op.Name, core.RefRepoExists), a)
	}
	var best core.RepoID
	var found *repository
	for id, r := range p.repos {
		if r.name != op.Name || r.deleted == 0 || !op.ID.IsZero() && op.ID != id {
			continue
		}
		if found == nil || r.deleted > found.deleted || r.deleted == found.deleted && bytes.Compare(id[:], best[:]) > 0 {
			best, found = id, r
		}
	}
	gone := found == nil || m.stamp >= found.deleted.Add(keepDeletedRepo)
	switch {
	case a.fact != nil && gone:
		return judgeRepo(repoRefused(op.Name, core.RefRepoNotFound), a)
	case a.fact != nil || found == nil:
		return fmt.Errorf("undelete of %q: answered %s, found %v", op.Name, a, found != nil)
	}
	if !a.blind && a.result.Refs != nil && a.result.Refs.Repo != best {
		return fmt.Errorf("undelete of %q brought %s back, not %s", op.Name, a.result.Refs.Repo, best)
	}
	next := found.clone()
	next.deleted = 0
	set(m, p.repos, best, next)
	return nil
}

// packSwap: the new pack stands for the old ones if all of them are there, and the new one is not there yet.
func (m *Model) packSwap(p *part, op *core.PackSwap, a answer, id core.RepoID, r *repository) error {
	old := map[core.Digest]bool{}
	for _, d := range op.Old {
		old[d] = true
	}
	if n := &op.New; len(old) == 0 || len(old) < len(op.Old) || len(old) > core.MaxSwapPacks || n.Kind != core.PackRollup || n.Bytes <= 0 || n.IdxBytes <= 0 {
		return judgeOdd(op, a)
	}
	var want core.Fact
	switch {
	case r == nil || id != op.ID:
		want = repoRefused(op.Repo, core.RefRepoNotFound)
	case op.Epoch != 0: // nothing raises it
		want = repoRefused(op.Repo, core.RefCheckStale)
	case op.StagedAt.Add(keepStagedPack) < m.stamp:
		want = repoRefused(op.Repo, core.RefPackExpired)
	default:
		next := r.clone()
		maps.DeleteFunc(next.packs, func(d core.Digest, _ int64) bool { return old[d] })
		_, there := next.packs[op.New.Digest]
		if there || len(next.packs) != len(r.packs)-len(old) {
			want = repoRefused(op.Repo, core.RefCheckStale)
			break
		}
		if a.fact == nil {
			next.packs[op.New.Digest] = op.New.Bytes
			set(m, p.repos, id, next)
			return nil
		}
	}
	return judgeRepo(want, a)
}

// judgeOdd wants a refusal of what an op may not say whatever the state.
func judgeOdd(op core.Op, a answer) error {
	switch a.fact.(type) {
	case core.Invalid, core.TooLarge:
		return nil
	}
	return fmt.Errorf("%T is out of bounds: answered %s", op, a)
}

func oddRepo(name string) bool {
	return name == "" || len(name) > 128 || strings.Contains(name, "..") || strings.Contains(name, ":") || strings.HasSuffix(name, ".git") || strings.HasSuffix(name, ".lock")
}

func oddConfig(c *core.RepoConfig) bool {
	return c.State > core.RepoArchived || c.ReflogDays < 0 || c.ReflogDays > 3650 || c.ReflogMax < 0 || c.ReflogMax > 10_000 || c.MaxBytes < 0 ||
		c.MaxPush < 0 || len(c.Hide) > 64 || len(c.Rules) > 64
}

// badRef reports whether git would not take a name for a ref of this service: HEAD, or one below refs/.
func badRef(name string) bool {
	if name == "HEAD" {
		return false
	}
	if !utf8.ValidString(name) || !strings.HasPrefix(name, "refs/") || len(name) > 1024 || strings.Count(name, "/") > 63 || strings.HasSuffix(name, ".") {
		return true
	}
	for _, bad := range []string{"..", "@{", "//", " ", "~", "^", ":", "?", "*", "[", `\`} {
		if strings.Contains(name, bad) {
			return true
		}
	}
	for component := range strings.SplitSeq(name, "/") {
		if component == "" || len(component) > 255 || strings.HasPrefix(component, ".") || strings.HasSuffix(component, ".lock") {
			return true
		}
	}
	return strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f })
}
