package keys

import (
	"bytes"
	"encoding/binary"

	"github.com/millrace/millrace/internal/core"
)

// Keys of the refs service. [partition][refs][space][...]:
//
//	1 name                      the table of repositories by name; under the empty name, how many there are
//	2 id, part, ...             what a repository holds, one contiguous range
//	3 time, id, name            the time index: of a ref's log, or of a deleted repository under the empty name
//	4 name, 0, id               deleted repositories by name
//
// The parts of a repository: 1 its record; 2 its counters; 3 refs by name; 4 how many children a directory of names
// has; 5 the log of a ref, newest first: name, 0, inverted number; 6 the manifest, by digest of the pack.
// No name holds a zero byte.

const (
	spaceRepoName    = 1
	spaceRepo        = 2
	spaceRefDue      = 3
	spaceRepoDeleted = 4

	partRepo  = 1
	partStats = 2
	partRef   = 3
	partDir   = 4
	partLog   = 5
	partPack  = 6

	repoIDLen  = len(core.RepoID{})
	refsPrefix = PartitionLen + 1 + 1
	partPrefix = refsPrefix + repoIDLen + 1
)

func beginRefs(p core.Partition, space byte, more int) []byte {
	return append(Begin(p, ServiceRefs, 1+more), space)
}

func beginRepo(p core.Partition, id core.RepoID, part byte, more int) []byte {
	dst := beginRefs(p, spaceRepo, repoIDLen+1+more)
	return append(append(dst, id[:]...), part)
}

// RepoName is the key of a name in the table of repositories; of an empty name, that of their number.
func RepoName(p core.Partition, name string) []byte {
	return End(append(beginRefs(p, spaceRepoName, len(name)), name...))
}

// RepoNames returns the bounds of the names after one; after the empty name, of all.
func RepoNames(p core.Partition, after string) (from, to []byte) {
	_, to = Range(beginRefs(p, spaceRepoName, 0))
	from = append(append(beginRefs(p, spaceRepoName, len(after)+2), after...), 1) // above the name, below all longer ones
	return End(from), to
}

// RepoNameOf returns the name in what RepoName made, aliasing it.
func RepoNameOf(key []byte) ([]byte, bool) { return bodyAfter(key, refsPrefix) }

// Repo is the key of a repository's record.
func Repo(p core.Partition, id core.RepoID) []byte { return End(beginRepo(p, id, partRepo, 0)) }

// RepoRange returns the bounds of everything a repository holds.
func RepoRange(p core.Partition, id core.RepoID) (from, to []byte) {
	return Range(append(beginRefs(p, spaceRepo, repoIDLen), id[:]...))
}

// RepoStats is the key of a repository's counters.
func RepoStats(p core.Partition, id core.RepoID) []byte { return End(beginRepo(p, id, partStats, 0)) }

// Ref is the key of a ref.
func Ref(p core.Partition, id core.RepoID, name string) []byte {
	return End(append(beginRepo(p, id, partRef, len(name)), name...))
}

// Refs returns the bounds of the refs whose names start with prefix.
func Refs(p core.Partition, id core.RepoID, prefix string) (from, to []byte) {
	return Range(append(beginRepo(p, id, partRef, len(prefix)), prefix...))
}

// RefsAfter returns the least key of a ref after the name given.
func RefsAfter(p core.Partition, id core.RepoID, name string) []byte {
	return End(append(append(beginRepo(p, id, partRef, len(name)+1), name...), 1))
}

// RefOf returns the name in what Ref made, aliasing it.
func RefOf(key []byte) ([]byte, bool) { return bodyAfter(key, partPrefix) }

// RefDir is the key of the number of children of a directory of names.
func RefDir(p core.Partition, id core.RepoID, dir string) []byte {
	return End(append(beginRepo(p, id, partDir, len(dir)), dir...))
}

func beginLog(p core.Partition, id core.RepoID, name string) []byte {
	return append(append(beginRepo(p, id, partLog, len(name)+1+8), name...), 0)
}

// RefLog is the key of a record of a ref's log.
func RefLog(p core.Partition, id core.RepoID, name string, seq uint64) []byte {
	return End(binary.BigEndian.AppendUint64(beginLog(p, id, name), ^seq))
}

// RefLogs returns the bounds of a ref's log, newest first, from record seq on; the highest number is all of it.
func RefLogs(p core.Partition, id core.RepoID, name string, seq uint64) (from, to []byte) {
	_, to = Range(beginLog(p, id, name))
	return RefLog(p, id, name, seq), to
}

// RefLogOf returns the number in what RefLog made.
func RefLogOf(key []byte) (seq uint64, ok bool) {
	body, ok := bodyAfter(key, partPrefix)
	if !ok || len(body) < 1+8 {
		return 0, false
	}
	return ^binary.BigEndian.Uint64(body[len(body)-8:]), true
}

// RepoLogs returns the bounds of the logs of all refs of a repository, by name, each newest first.
func RepoLogs(p core.Partition, id core.RepoID) (from, to []byte) {
	return Range(beginRepo(p, id, partLog, 0))
}

// RefLogNameOf returns the name in what RefLog made, aliasing it.
func RefLogNameOf(key []byte) (name []byte, ok bool) {
	body, ok := bodyAfter(key, partPrefix)
	if !ok || len(body) < 1+8 {
		return nil, false
	}
	return body[:len(body)-1-8], true
}

// Pack is the key of a line of a repository's manifest.
func Pack(p core.Partition, id core.RepoID, digest core.Digest) []byte {
	return End(append(beginRepo(p, id, partPack, len(digest)), digest[:]...))
}

// Packs returns the bounds of a repository's manifest.
func Packs(p core.Partition, id core.RepoID) (from, to []byte) {
	return Range(beginRepo(p, id, partPack, 0))
}

// PackOf reads what Pack made. ok is false for any other key.
func PackOf(key []byte) (p core.Partition, id core.RepoID, digest core.Digest, ok bool) {
	p, id, part, ok := repoOf(key)
	body := Body(key)
	if !ok || part != partPack || len(body) != partPrefix+len(digest) || len(key) != len(body)+1 {
		return p, id, digest, false
	}
	copy(digest[:], body[partPrefix:])
	return p, id, digest, true
}

// Repos returns the bounds of everything that all repositories of a partition hold, one repository after another.
func Repos(p core.Partition) (from, to []byte) { return Range(beginRefs(p, spaceRepo, 0)) }

// RepoOf returns the repository that holds a key within Repos.
func RepoOf(key []byte) (id core.RepoID, ok bool) {
	_, id, _, ok = repoOf(key)
	return id, ok
}

func repoOf(key []byte) (p core.Partition, id core.RepoID, part byte, ok bool) {
	p, service, ok := PartitionOf(key)
	body := Body(key)
	if !ok || service != ServiceRefs || len(body) < partPrefix || body[PartitionLen+1] != spaceRepo {
		return p, id, 0, false
	}
	copy(id[:], body[refsPrefix:])
	return p, id, body[partPrefix-1], true
}

// RefDue is the key in the time index of a ref's log, or with an empty name of a deleted repository.
func RefDue(p core.Partition, due core.ShardTime, id core.RepoID, name string) []byte {
	dst := binary.BigEndian.AppendUint64(beginRefs(p, spaceRefDue, 8+repoIDLen+len(name)), uint64(due))
	return End(append(append(dst, id[:]...), name...))
}

// RefsDue returns the bounds of the time index up to a time.
func RefsDue(p core.Partition, until core.ShardTime) (from, to []byte) {
	from, to = Range(beginRefs(p, spaceRefDue, 0))
	if until < core.Never {
		to = End(binary.BigEndian.AppendUint64(beginRefs(p, spaceRefDue, 8), uint64(until)+1))
	}
	return from, to
}

// RefDueOf reads what RefDue made. name aliases key.
func RefDueOf(key []byte) (due core.ShardTime, id core.RepoID, name []byte, ok bool) {
	body, ok := bodyAfter(key, refsPrefix)
	if !ok || len(body) < 8+repoIDLen {
		return 0, id, nil, false
	}
	copy(id[:], body[8:])
	return core.ShardTime(binary.BigEndian.Uint64(body)), id, body[8+repoIDLen:], true
}

// RepoDeleted is the key of a deleted repository under its name.
func RepoDeleted(p core.Partition, name string, id core.RepoID) []byte {
	dst := append(beginRefs(p, spaceRepoDeleted, len(name)+1+repoIDLen), name...)
	return End(append(append(dst, 0), id[:]...))
}

// ReposDeleted returns the bounds of the deleted repositories of a name; of an empty name, of all.
func ReposDeleted(p core.Partition, name string) (from, to []byte) {
	dst := beginRefs(p, spaceRepoDeleted, len(name)+1)
	if name != "" {
		dst = append(append(dst, name...), 0)
	}
	return Range(dst)
}

// RepoDeletedOf reads what RepoDeleted made. name aliases key.
func RepoDeletedOf(key []byte) (name []byte, id core.RepoID, ok bool) {
	body, ok := bodyAfter(key, refsPrefix)
	i := bytes.IndexByte(body, 0)
	if !ok || i < 0 || len(body)-i-1 != repoIDLen {
		return nil, id, false
	}
	copy(id[:], body[i+1:])
	return body[:i], id, true
}

// bodyAfter returns what follows the first n bytes of a key's body, aliasing it.
func bodyAfter(key []byte, n int) ([]byte, bool) {
	body := Body(key)
	if len(body) < n {
		return nil, false
	}
	return body[n:], true
}
