package refs

import (
	"cmp"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/keys"
)

// maxReposListed bounds one listing, in repositories.
const maxReposListed = 1000

// Find reads a repository by name. ok is false when there is none, or it is deleted.
func Find(v core.View, p core.Partition, name string) (core.RepoInfo, bool, error) {
	id, ok, err := repoID(v, p, name)
	if err != nil || !ok {
		return core.RepoInfo{}, false, err
	}
	info, ok, err := readRepo(v, p, id)
	if err == nil && !ok {
		err = errs.Corruptf("repository %s of %s: its name is there, its record is not", id, p)
	}
	return info, ok, err
}

// FindID reads a repository by id, deleted or not, as long as anything of it is there.
func FindID(v core.View, p core.Partition, id core.RepoID) (core.RepoInfo, bool, error) {
	return readRepo(v, p, id)
}

// readRepo reads a repository's record, its counters and HEAD. A record without counters means that
// the store is damaged.
func readRepo(v core.View, p core.Partition, id core.RepoID) (info core.RepoInfo, ok bool, err error) {
	record, ok, err := v.Get(keys.Repo(p, id))
	if err != nil || !ok {
		return info, false, err
	}
	if info.Repo, err = core.DecodeRepo(record); err != nil {
		return info, false, errs.Corruptf("repository %s of %s: %v", id, p, err)
	}
	stats, ok, err := v.Get(keys.RepoStats(p, id))
	if err != nil {
		return info, false, err
	}
	// The counters are written with the record, and never deleted before it.
	if ok {
		info.Stats, err = core.DecodeRepoStats(stats)
	}
	if !ok || err != nil {
		return info, false, errs.Corruptf("counters of repository %s of %s: %x", id, p, stats)
	}
	head, ok, err := getRow(v, p, id, "HEAD")
	if err != nil {
		return info, false, err
	}
	if ok {
		info.Head = head.target
	}
	return info, true, nil
}

// getRow reads the row of a ref from a view, without a transaction.
func getRow(v core.View, p core.Partition, id core.RepoID, name string) (row, bool, error) {
	b, ok, err := v.Get(keys.Ref(p, id, name))
	if err != nil || !ok {
		return row{}, false, err
	}
	r, err := decodeRow(b)
	if err != nil {
		return row{}, false, errs.Corruptf("ref %q of repository %s: %x", name, id, b)
	}
	return r, true, nil
}

// List reads at most limit repositories by name, after the name given.
func List(v core.View, p core.Partition, after string, limit int) ([]core.RepoInfo, error) {
	// Ids are collected first: their records lie elsewhere, and a scan reads one range.
	var ids []core.RepoID
	from, to := keys.RepoNames(p, after)
	if after == "" {
		from, to = keys.RepoNames(p, "")
	}
	err := core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		if name, ok := keys.RepoNameOf(key); !ok || len(value) != len(core.RepoID{}) {
			return false, errs.Corruptf("repository %q of %s: id of %d bytes", name, p, len(value))
		}
		ids = append(ids, core.RepoID(value))
		return len(ids) < min(limit, maxReposListed), nil
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
		if !ok {
			return nil, errs.Corruptf("repository %s of %s: its name is there, its record is not", id, p)
		}
		out = append(out, info)
	}
	return out, nil
}

// Deleted reads deleted repositories that are not gone yet, by name: at most limit.
func Deleted(v core.View, p core.Partition, limit int) ([]core.RepoInfo, error) {
	return deleted(v, p, "", min(limit, maxReposListed))
}

// Get reads one ref.
func Get(v core.View, p core.Partition, id core.RepoID, name string) (core.Ref, bool, error) {
	// A ref cannot have a name of such a length.
	if name == "" || len(name) > core.MaxRefName {
		return core.Ref{}, false, nil
	}
	r, ok, err := getRow(v, p, id, name)
	if err != nil || !ok {
		return core.Ref{}, false, err
	}
	return r.ref(name), true, nil
}

// Resolve follows symbolic refs from ref to the one that has an id, at most maxDepth of them. ok is
// false when there is none.
func Resolve(v core.View, p core.Partition, id core.RepoID, ref core.Ref) (core.Ref, bool, error) {
	for range maxDepth {
		if ref.Target == "" {
			return ref, true, nil
		}
		next, ok, err := Get(v, p, id, ref.Target)
		if err != nil || !ok {
			return core.Ref{}, false, err
		}
		ref = next
	}
	// After maxDepth steps it may still be symbolic: then it leads nowhere.
	return ref, ref.Target == "", nil
}

// Scan calls fn for each ref whose name starts with prefix and follows after, in byte order, until fn returns false.
func Scan(v core.View, p core.Partition, id core.RepoID, prefix, after string, fn func(core.Ref) bool) error {
	from, to := keys.Refs(p, id, prefix)
	// A name before the prefix leaves the whole range.
	if after >= prefix && after != "" {
		from = keys.RefsAfter(p, id, after)
		if keys.Compare(from, to) >= 0 {
			return nil
		}
	}
	return core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		name, ok := keys.RefOf(key)
		r, err := decodeRow(value)
		if !ok || err != nil {
			return false, errs.Corruptf("ref %q of repository %s: %x", name, id, value)
		}
		return fn(r.ref(string(name))), nil
	})
}

// Matches reports whether name matches one of globs, in which * stands for any bytes within a component and ** for any.
func Matches(globs []string, name string) bool { return matchAny(globs, name) }

// Log reads the log of a ref, deleted or not, newest first: at most limit records, from number before-1 down; before 0
// is all. Records beyond the repository's settings are not shown.
func Log(v core.View, p core.Partition, info *core.RepoInfo, name string, before uint64, limit int, now core.ShardTime) ([]core.RefLog, error) {
	config := info.Config.WithDefaults()
	// Records older than this may still be stored until the next tick.
	oldest := now - core.ShardTime(config.ReflogDays)*core.ShardTime(dayMillis)
	left := int(config.ReflogMax)
	from, to := keys.RefLogs(p, info.ID, name, ^uint64(0))
	var out []core.RefLog
	err := core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
		entry, err := core.DecodeRefLog(value)
		seq, ok := keys.RefLogOf(key)
		if err != nil || !ok {
			return false, errs.Corruptf("log of %q of repository %s: %x", name, info.ID, value)
		}
		// Both bounds are those of the settings now, whatever was stored under earlier ones.
		if left--; left < 0 || entry.Stamp < oldest {
			return false, nil
		}
		if before == 0 || seq < before {
			entry.Name, entry.Seq = name, seq
			out = append(out, entry)
		}
		return len(out) < limit, nil
	})
	return out, err
}

// maxMoved bounds the refs that Moved looks at.
const maxMoved = 10_000

// Moved reads the refs of a repository that want reports, those first that were changed last, those of one commit by name: at most
// q.Limit, after the ref of the revision q.AfterRev and the name q.After. partial says that it has looked at as many refs as it may, and
// that others with the prefix are left, which come behind these by name.
func Moved(v core.View, p core.Partition, info *core.RepoInfo, q core.RefQuery, want func(r *core.Ref) bool) (list []core.Ref, partial bool, err error) {
	looked := 0
	order := func(a, b *core.Ref) int {
		return cmp.Or(cmp.Compare(b.Rev, a.Rev), strings.Compare(a.Name, b.Name))
	}
	last := core.Ref{Name: q.After, Rev: q.AfterRev}
	err = Scan(v, p, info.ID, q.Prefix, "", func(r core.Ref) bool {
		if looked++; looked > maxMoved {
			partial = true
			return false
		}
		full := len(list) == q.Limit && order(&list[q.Limit-1], &r) < 0
		if full || q.After != "" && order(&last, &r) >= 0 || !want(&r) {
			return true
		}
		at, _ := slices.BinarySearchFunc(list, &r, func(a core.Ref, b *core.Ref) int { return order(&a, b) })
		if list = slices.Insert(list, at, r); len(list) > q.Limit {
			list = list[:q.Limit]
		}
		return true
	})
	return list, partial, err
}

// maxActivity bounds the records that Activity looks at.
const maxActivity = 10_000

// Activity reads the logs of all refs together, newest first, deleted refs too: those of one revision by name. Of each ref it reads no
// further than records are among those to be shown. partial says that it has looked at as many records as it may, and that refs are left.
func Activity(v core.View, p core.Partition, info *core.RepoInfo, q core.ActivityQuery, now core.ShardTime) (list []core.RefLog, partial bool, err error) {
	config := info.Config.WithDefaults()
	oldest := now - core.ShardTime(config.ReflogDays)*core.ShardTime(dayMillis)
	from, to := keys.RepoLogs(p, info.ID)
	var name string // of the ref whose log is read
	left, inspected := 0, 0
	for more := true; more && err == nil; {
		more = false
		err = core.ScanRows(v, from, to, func(key, value []byte) (bool, error) {
			entry, err := core.DecodeRefLog(value)
			of, ok := keys.RefLogNameOf(key)
			if err != nil || !ok {
				return false, errs.Corruptf("log of repository %s: %x at %x", info.ID, value, key)
			}
			if inspected++; inspected > maxActivity {
				partial = true
				return false, nil
			}
			if string(of) != name {
				name, left = string(of), int(config.ReflogMax)
			}
			entry.Name = name
			entry.Seq, _ = keys.RefLogOf(key)
			left--
			behind := q.Rev == 0 || entry.Rev < q.Rev || entry.Rev == q.Rev && name > q.Name
			full := len(list) == q.Limit && newer(&list[q.Limit-1], &entry) < 0
			switch {
			case left < 0 || entry.Stamp < oldest || behind && full || q.Hidden != nil && q.Hidden(info, name):
				// All further records of this ref are older.
				_, from = keys.RefLogs(p, info.ID, name, 0)
				more = true
				return false, nil
			case behind:
				at, _ := slices.BinarySearchFunc(list, &entry, func(a core.RefLog, b *core.RefLog) int { return newer(&a, b) })
				if list = slices.Insert(list, at, entry); len(list) > q.Limit {
					list = list[:q.Limit]
				}
			}
			return true, nil
		})
	}
	return list, partial, err
}

// newer orders records: those of later revisions come first, and of one revision those of refs with lower names.
func newer(a, b *core.RefLog) int {
	return cmp.Or(cmp.Compare(b.Rev, a.Rev), strings.Compare(a.Name, b.Name))
}

// Packs reads the manifest of a repository, by digest.
func Packs(v core.View, p core.Partition, id core.RepoID) ([]core.PackLine, error) {
	var out []core.PackLine
	from, to := keys.Packs(p, id)
	err := core.ScanRows(v, from, to, func(_, value []byte) (bool, error) {
		line, err := core.DecodePackLine(value)
		if err != nil {
			return false, errs.Corruptf("manifest of repository %s: %v", id, err)
		}
		out = append(out, line)
		return true, nil
	})
	return out, err
}

// EachPack calls fn for each line of the manifests of all repositories of a partition, deleted ones that may come back
// included, one repository after another, until fn fails.
func EachPack(v core.View, p core.Partition, fn func(id core.RepoID, line core.PackLine) error) error {
	from, to := keys.Repos(p)
	for {
		// The first key of each repository leads to the next one; its other rows are not read.
		var id core.RepoID
		found := false
		err := core.ScanRows(v, from, to, func(key, _ []byte) (bool, error) {
			if id, found = keys.RepoOf(key); !found {
				return false, errs.Corruptf("key %x of the refs of %s has no known form", key, p)
			}
			return false, nil
		})
		if err != nil || !found {
			return err
		}
		lines, err := Packs(v, p, id)
		if err != nil {
			return err
		}
		for _, line := range lines {
			if err := fn(id, line); err != nil {
				return err
			}
		}
		if _, from = keys.RepoRange(p, id); keys.Compare(from, to) >= 0 {
			return nil
		}
	}
}

// HasRepos reports whether there is a repository, or a deleted one that can be brought back. v is of the state that the machine
// is of.
func (m *Machine) HasRepos(v core.View) (bool, error) {
	from, to := keys.Repos(m.p)
	return core.SomeRow(v, from, to)
}
