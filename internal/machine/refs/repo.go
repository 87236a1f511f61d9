package refs

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// keepDeleted is how long a deleted repository can be brought back: 7 days.
const (
	keepDeleted core.Millis = 7 * 24 * 60 * 60 * 1000
)

// create makes a repository with a symbolic HEAD and nothing else. The same create again, under the
// same id, is a replay; another id under the same name is refused.
func (m *Machine) create(tx core.Txn, c *core.ApplyContext, op *core.RepoCreate, r *core.OpResult) (core.Fact, error) {
	branch := "refs/heads/" + op.Branch
	if op.Branch == "" {
		branch += core.DefaultBranch
	}
	if fact := checkCreate(op, branch); fact != nil {
		return fact, nil
	}
	old, err := m.find(tx, op.Name)
	if err != nil {
		return nil, err
	}
	// The same id shows that it is the same create, whose answer was lost.
	if old != nil && old.ID == op.ID {
		r.Replayed, r.Version = true, old.Config.Version
		r.Refs = &core.RefsAnswer{Repo: old.ID, Rev: old.stats.Rev}
		return nil, nil
	}
	if old != nil {
		return refused(op.Name, core.RefRepoExists), nil
	}
	if _, taken, err := tx.Get(keys.Repo(m.p, op.ID)); err != nil || taken {
		return core.AlreadyExists{Kind: "repository", ID: op.ID.String()}, err
	}
	n, err := m.count(tx)
	if err != nil {
		return nil, err
	}
	if n >= m.o.MaxRepos {
		return core.Exhausted{Limit: "repositories", Max: m.o.MaxRepos}, nil
	}
	m.forget(op.Name)
	m.setCount(tx, n+1)
	repo := core.Repo{
		ID: op.ID, Name: op.Name, Tag: op.Tag, Config: op.Config, CreatedAt: c.Stamp, CreatedBy: c.Principal,
	}
	// Versions begin at 1, so that 0 stands for none.
	repo.Config.Version = 1
	tx.Set(keys.RepoName(m.p, op.Name), append([]byte(nil), op.ID[:]...))
	tx.Set(keys.Repo(m.p, op.ID), core.AppendRepo(nil, &repo))
	tx.Set(keys.RepoStats(m.p, op.ID), core.AppendRepoStats(nil, &core.RepoStats{Refs: 1}))
	tx.Set(keys.Ref(m.p, op.ID, "HEAD"), row{target: branch}.append(nil))
	r.Version = 1
	r.Refs = &core.RefsAnswer{Repo: op.ID}
	return nil, nil
}

// checkCreate judges a create by itself, whatever is stored.
func checkCreate(op *core.RepoCreate, branch string) core.Fact {
	switch {
	case core.CheckRepoName(op.Name) != "":
		return core.Invalid{Field: "name", Reason: "bad_name", Message: core.CheckRepoName(op.Name)}
	case op.ID.IsZero():
		return core.Invalid{Field: "id", Reason: "empty", Message: "a repository has an id"}
	case len(op.Tag) > core.MaxRuleName:
		return core.TooLarge{Field: "tag", Limit: "tag_bytes", Max: core.MaxRuleName}
	}
	if fact := checkBranch(branch); fact != nil {
		return fact
	}
	return checkConfig(&op.Config)
}

// checkBranch judges the full name of a default branch.
func checkBranch(branch string) core.Fact {
	if rule := core.CheckRefName(branch); rule != "" {
		return core.Invalid{Field: "default_branch", Reason: "ref_name", Message: rule}
	}
	return nil
}

// set replaces the settings, and with a branch moves HEAD. The version rises only when something changed.
func (m *Machine) set(tx core.Txn, c *core.ApplyContext, op *core.RepoSet, r *core.OpResult) (core.Fact, error) {
	if fact := checkConfig(&op.Config); fact != nil {
		return fact, nil
	}
	if op.Branch != "" {
		if fact := checkBranch("refs/heads/" + op.Branch); fact != nil {
			return fact, nil
		}
	}
	repo, err := m.find(tx, op.Name)
	if err != nil {
		return nil, err
	}
	if repo == nil {
		return refused(op.Name, core.RefRepoNotFound), nil
	}
	if fact := matches(repo, op.IfVersion); fact != nil {
		return fact, nil
	}
	next := repo.Repo
	next.Config = op.Config
	next.Config.Version = repo.Config.Version
	// HEAD is a setting too: moving it raises the version.
	head := op.Branch != "" && repo.head != "refs/heads/"+op.Branch
	if head || !sameConfig(next.Config.WithDefaults(), repo.Config) {
		next.Config.Version++
	}
	r.Version = next.Config.Version
	m.forget(op.Name)
	tx.Set(keys.Repo(m.p, repo.ID), core.AppendRepo(nil, &next))
	if head {
		if err := m.setHead(tx, c, repo, "refs/heads/"+op.Branch); err != nil {
			return nil, err
		}
	}
	r.Refs = &core.RefsAnswer{Repo: repo.ID, Rev: repo.stats.Rev}
	return nil, nil
}

// setHead lets HEAD point to a branch as a transaction would: with a record in its log and a revision.
func (m *Machine) setHead(tx core.Txn, c *core.ApplyContext, r *repo, target string) error {
	// The op is an empty transaction: there is no change of a client to judge.
	t := transaction{m: m, tx: tx, c: c, op: &core.RefTxn{Repo: r.Name}, repo: r, rev: r.stats.Rev + 1}
	cur, ok, err := t.get("HEAD")
	if err != nil {
		return err
	}
	e := edit{name: "HEAD", cur: cur, exists: ok, what: changeUpdate, next: row{target: target}}
	if !ok {
		e.what = changeCreate
	}
	if e.old, err = t.value("HEAD", cur, ok); err != nil {
		return err
	}
	if e.new, err = t.value("HEAD", e.next, true); err != nil {
		return err
	}
	if err := t.write(&e, &core.RefChange{}); err != nil {
		return err
	}
	return t.end()
}

// sameConfig compares settings by what would be stored.
func sameConfig(a, b core.RepoConfig) bool {
	return string(core.AppendRepo(nil, &core.Repo{Config: a})) == string(core.AppendRepo(nil, &core.Repo{Config: b}))
}

// matches judges the version that an op expects; a negative one means any.
func matches(r *repo, version int64) core.Fact {
	if version >= 0 && uint64(version) != r.Config.Version {
		return core.RevMismatch{Rev: r.Config.Version}
	}
	return nil
}

// delete frees the name at once. What the repository holds goes keepDeleted later, in a tick,
// unless it is brought back before.
func (m *Machine) delete(tx core.Txn, c *core.ApplyContext, op *core.RepoDelete, r *core.OpResult) (core.Fact, error) {
	repo, err := m.find(tx, op.Name)
	if err != nil {
		return nil, err
	}
	if repo == nil {
		return refused(op.Name, core.RefRepoNotFound), nil
	}
	if fact := matches(repo, op.IfVersion); fact != nil {
		return fact, nil
	}
	next := repo.Repo
	// 0 would mean that it is not deleted.
	next.DeletedAt = max(c.Stamp, 1)
	m.forget(op.Name)
	tx.Delete(keys.RepoName(m.p, op.Name))
	tx.Set(keys.Repo(m.p, repo.ID), core.AppendRepo(nil, &next))
	tx.Set(keys.RepoDeleted(m.p, op.Name, repo.ID), nil)
	m.arm(tx, next.DeletedAt.Add(keepDeleted), repo.ID, "")
	r.Refs = &core.RefsAnswer{Repo: repo.ID, Rev: repo.stats.Rev}
	return nil, nil
}

// undelete brings a repository back under its name, which must be free. Its row in the time index
// stays, and purge passes it over.
func (m *Machine) undelete(tx core.Txn, op *core.RepoUndelete, r *core.OpResult) (core.Fact, error) {
	live, err := m.find(tx, op.Name)
	if err != nil {
		return nil, err
	}
	if live != nil {
		return refused(op.Name, core.RefRepoExists), nil
	}
	info, ok, err := lastDeleted(tx, m.p, op.Name, op.ID)
	if err != nil {
		return nil, err
	}
	if !ok {
		return refused(op.Name, core.RefRepoNotFound), nil
	}
	next := info.Repo
	next.DeletedAt = 0
	m.forget(op.Name)
	tx.Set(keys.RepoName(m.p, op.Name), append([]byte(nil), next.ID[:]...))
	tx.Set(keys.Repo(m.p, next.ID), core.AppendRepo(nil, &next))
	tx.Delete(keys.RepoDeleted(m.p, op.Name, next.ID))
	r.Version = next.Config.Version
	r.Refs = &core.RefsAnswer{Repo: next.ID, Rev: info.Stats.Rev}
	return nil, nil
}

// lastDeleted finds a deleted repository of a name: the one with the id, or without an id the one
// that was deleted last; of two at one time the greater id.
func lastDeleted(v core.View, p core.Partition, name string, id core.RepoID) (best core.RepoInfo, ok bool, err error) {
	if name == "" {
		return best, false, nil
	}
	list, err := deleted(v, p, name, maxReposListed)
	for i := range list {
		// Without an id all of the name are candidates.
		if !id.IsZero() && list[i].ID != id {
			continue
		}
		if !ok || list[i].DeletedAt >= best.DeletedAt {
			best, ok = list[i], true
		}
	}
	return best, ok, err
}

// checkConfig judges settings that will be stored, naming the field that is wrong.
func checkConfig(c *core.RepoConfig) core.Fact {
	invalid := func(field, message string) core.Fact {
		return core.Invalid{Field: field, Reason: "out_of_range", Message: message}
	}
	switch {
	case c.State > core.RepoArchived:
		return invalid("config.state", "not a state of a repository")
	case c.ReflogDays < 0 || c.ReflogDays > core.MaxReflogDays:
		return invalid("config.reflog_days", "at most 3650")
	case c.ReflogMax < 0 || c.ReflogMax > core.MaxReflogItems:
		return invalid("config.reflog_max", "at most 10000")
	case c.MaxBytes < 0:
		return invalid("config.max_bytes", "a bound is not negative")
	case c.MaxPush < 0:
		return invalid("config.max_push", "a bound is not negative")
	case len(c.Hide) > core.MaxRepoHide:
		return core.TooLarge{Field: "config.hide", Limit: "hide_globs", Max: core.MaxRepoHide}
	case len(c.Rules) > core.MaxRepoRules:
		return core.TooLarge{Field: "config.rules", Limit: "rules", Max: core.MaxRepoRules}
	}
	for i, glob := range c.Hide {
		if fact := checkGlob(fmt.Sprintf("config.hide[%d]", i), glob); fact != nil {
			return fact
		}
	}
	for i := range c.Rules {
		if fact := checkRule(fmt.Sprintf("config.rules[%d]", i), &c.Rules[i]); fact != nil {
			return fact
		}
	}
	return nil
}

// checkRule judges one rule of the settings. field is the path to it.
func checkRule(field string, v *core.RefRule) core.Fact {
	if fact := checkGlob(field+".refs", v.Refs); fact != nil {
		return fact
	}
	// All kinds of change that a rule may deny.
	const all = core.DenyCreate | core.DenyUpdate | core.DenyDelete | core.DenyForce
	switch {
	case v.Deny&^all != 0:
		return core.Invalid{Field: field + ".deny", Reason: "unknown", Message: "not a kind of change"}
	case v.Only > core.ViaEffects:
		return core.Invalid{Field: field + ".only", Reason: "unknown", Message: "not a door"}
	case v.Deny == 0 && v.Only == core.ViaAny:
		return core.Invalid{Field: field, Reason: "empty", Message: "it denies nothing"}
	case v.Queue != "" && v.Only != core.ViaEffects:
		return core.Invalid{Field: field + ".queue", Reason: "contradiction", Message: "only effects come from a queue"}
	case len(v.Queue) > core.MaxRuleName:
		return core.TooLarge{Field: field + ".queue", Limit: "name_bytes", Max: core.MaxRuleName}
	case len(v.Except) > core.MaxRuleNames:
		return core.TooLarge{Field: field + ".except", Limit: "rule_principals", Max: core.MaxRuleNames}
	}
	for i, name := range v.Except {
		if name == "" || len(name) > core.MaxRuleName {
			return core.Invalid{Field: fmt.Sprintf("%s.except[%d]", field, i), Reason: "bad_name", Message: "1 to 128 bytes"}
		}
	}
	return nil
}

// checkGlob judges a glob. The number of stars is bounded, since each costs time when names are matched.
func checkGlob(field, glob string) core.Fact {
	switch {
	case glob == "" || !utf8.ValidString(glob) || strings.ContainsRune(glob, 0):
		return core.Invalid{Field: field, Reason: "bad_glob", Message: "a glob is a text that is not empty"}
	case len(glob) > core.MaxRefGlob:
		return core.TooLarge{Field: field, Limit: "glob_bytes", Max: core.MaxRefGlob}
	case strings.Count(glob, "*") > core.MaxRefStars:
		return core.TooLarge{Field: field, Limit: "glob_stars", Max: core.MaxRefStars}
	}
	return nil
}

// deleted lists deleted repositories of a name, or with an empty name of all names, in order of their keys.
func deleted(v core.View, p core.Partition, name string, limit int) ([]core.RepoInfo, error) {
	var ids []core.RepoID
	from, to := keys.ReposDeleted(p, name)
	err := core.ScanRows(v, from, to, func(key, _ []byte) (bool, error) {
		_, id, ok := keys.RepoDeletedOf(key)
		if !ok {
			return false, errs.Corruptf("deleted repository: key %x", key)
		}
		ids = append(ids, id)
		return len(ids) < limit, nil
	})
	if err != nil {
		return nil, err
	}
	out := make([]core.RepoInfo, 0, len(ids))
	for _, id := range ids {
		info, ok, err := readRepo(v, p, id)
		if err != nil {
			return nil, err
		}
		// A key without a deleted record behind it is damage.
		if !ok || info.DeletedAt == 0 {
			return nil, errs.Corruptf("deleted repository %s of %s is not there", id, p)
		}
		out = append(out, info)
	}
	return out, nil
}
