package core

import (
	"encoding/hex"
	"errors"
)

// ObjectID is the SHA-1 name of a git object; zero is none, as in git. Texts are 40 lower-case hexadecimal digits.
type ObjectID [20]byte

// ErrObjectID says that a text is not an object id.
var ErrObjectID = errors.New("an object id is 40 lower-case hexadecimal digits")

// ParseObjectID reads 40 lower-case hexadecimal digits; 40 zeros are the zero id.
func ParseObjectID(s string) (id ObjectID, err error) {
	if len(s) != hex.EncodedLen(len(id)) {
		return id, ErrObjectID
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return id, ErrObjectID
		}
	}
	_, err = hex.Decode(id[:], []byte(s))
	return id, err
}

// String returns the 40 digits of id.
func (id ObjectID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether id names no object.
func (id ObjectID) IsZero() bool { return id == ObjectID{} }

// RepoID identifies a repository for good: 16 random bytes, never given out twice. It names the directory of its
// objects.
type RepoID [16]byte

// String returns 32 hexadecimal digits.
func (id RepoID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether id is unset.
func (id RepoID) IsZero() bool { return id == RepoID{} }

// ParseRepoID reads what String prints.
func ParseRepoID(s string) (id RepoID, err error) {
	if len(s) != hex.EncodedLen(len(id)) {
		return id, ErrRepoID
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return RepoID{}, ErrRepoID
	}
	return id, nil
}

// ErrRepoID says that a text is not a repository id.
var ErrRepoID = errors.New("a repository id is 32 hexadecimal digits")

// ObjectType is the type of a git object, with git's own numbers in packs. They are stored.
type ObjectType uint8

// The types. ObjectMissing says that who looked did not find the object.
const (
	ObjectMissing ObjectType = 0
	ObjectCommit  ObjectType = 1
	ObjectTree    ObjectType = 2
	ObjectBlob    ObjectType = 3
	ObjectTag     ObjectType = 4
)

// String names the type as git does.
func (t ObjectType) String() string {
	switch t {
	case ObjectCommit:
		return "commit"
	case ObjectTree:
		return "tree"
	case ObjectBlob:
		return "blob"
	case ObjectTag:
		return "tag"
	}
	return "missing"
}

// RepoState is what may be done with a repository. Numbers are stored.
type RepoState uint8

// The states of a repository.
const (
	RepoReady     RepoState = 0
	RepoImporting RepoState = 1
	RepoArchived  RepoState = 2 // read-only
)

// Via is the door that a change of refs comes by. Numbers are stored and in entries.
type Via uint8

// The doors.
const (
	ViaAny     Via = 0 // in rules only
	ViaAPI     Via = 1
	ViaPush    Via = 2
	ViaEffects Via = 3 // of a task's completion: Apply sets it
)

// Deny is a set of kinds of change that a rule denies. Numbers are stored.
type Deny uint8

// The kinds of change.
const (
	DenyCreate Deny = 1 << iota
	DenyUpdate
	DenyDelete
	DenyForce // an update to a commit that does not descend from the old one
)

// RefRule protects refs: all rules that match a ref must agree to a change.
type RefRule struct {
	Refs   string // glob: * within a component, ** across
	Deny   Deny
	Except []string // principals that it does not bind
	Only   Via      // if not ViaAny, the only door that its refs move by
	Queue  string   // with ViaEffects: only by completions of this queue's tasks
}

// RepoConfig is the settings of a repository. Zero means the default.
type RepoConfig struct {
	Version    uint64 // rises by one with each change
	State      RepoState
	Hide       []string // globs: neither listed nor changed without ref:admin
	Rules      []RefRule
	ReflogDays int32 // 1 to 3650; default 90
	ReflogMax  int32 // per ref, 1 to 10,000; default 1,000
	MaxBytes   int64 // of all packs; default 10 GiB
	MaxPush    int64 // of one pack; default 512 MiB
}

// Defaults of a repository's settings.
const (
	DefaultReflogDays = 90
	DefaultReflogMax  = 1000
	DefaultRepoBytes  = 10 << 30
	// Bytes of all packs of a repository, and of the pack of one push.
	DefaultPushBytes = 512 << 20
	DefaultBranch    = "main"
)

// WithDefaults returns c with the defaults in the place of zeros.
func (c RepoConfig) WithDefaults() RepoConfig {
	set := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	set(&c.MaxBytes, DefaultRepoBytes)
	set(&c.MaxPush, DefaultPushBytes)
	if c.ReflogDays == 0 {
		c.ReflogDays = DefaultReflogDays
	}
	if c.ReflogMax == 0 {
		c.ReflogMax = DefaultReflogMax
	}
	return c
}

// Repo is a repository as its record holds it.
type Repo struct {
	ID        RepoID
	Name      string
	Tag       string // what places it, when it is not its name
	Config    RepoConfig
	CreatedAt ShardTime
	CreatedBy string
	DeletedAt ShardTime // 0: it is not deleted
}

// RepoStats counts what a repository holds.
type RepoStats struct {
	Rev      uint64 // change counter: +1 for each commit that changes a ref
	Refs     int64  // HEAD and other symbolic refs included
	Packs    int64
	Bytes    int64  // of all packs and their indexes
	Manifest uint64 // version of the manifest: +1 for each change of it
	Epoch    uint32 // of the objects that facts were checked against; 0 until objects are ever collected
}

// RepoInfo is a repository as a read finds it.
type RepoInfo struct {
	Repo
	Stats RepoStats
	Head  string // what HEAD points to, empty when it is detached
}

// Ref is one reference: either an id or a target is set.
type Ref struct {
	Name   string
	ID     ObjectID
	Type   ObjectType
	Peeled ObjectID // what a tag finally points to, if that is not ID
	Target string   // of a symbolic ref
	Rev    uint64   // of the repository at its last change
}

// CauseKind says what changed a ref. Numbers are stored.
type CauseKind uint8

// The causes.
const (
	CauseRequest CauseKind = 1
	CausePush    CauseKind = 2
	CauseTimer   CauseKind = 3
	CauseTask    CauseKind = 4
)

// RefLog is one record of a ref's log.
type RefLog struct {
	Name      string
	Seq       uint64 // rises with each record of the ref
	Old, New  ObjectID
	OldTarget string // of a symbolic ref
	NewTarget string
	Principal string
	Cause     CauseKind
	Request   RequestID // of a push or request, when it had one
	Task      TaskID    // of a task's completion, with its token
	Token     Token
	Message   string
	Stamp     ShardTime
	Index     uint64
	Rev       uint64
}

// ActivityQuery asks for a page of the logs of all refs of a repository together, newest first.
type ActivityQuery struct {
	// The page begins behind the record of this revision and ref; 0: at the newest.
	Rev   uint64
	Name  string
	Limit int
	// Hidden reports whether a ref is not to be told of; nil: none is.
	Hidden func(info *RepoInfo, name string) bool
}

// PackKind says what a pack is for. Numbers are stored and in entries.
type PackKind uint8

// The kinds of pack.
const (
	PackPush   PackKind = 1
	PackRollup PackKind = 2 // holds what several packs held
	PackCruft  PackKind = 3 // reserved
)

// Digest is a SHA-256.
type Digest [32]byte

// String returns 64 hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Pack is a pack as entries name it: its file and its index by their digests and sizes.
type Pack struct {
	Digest   Digest // of the pack file
	Idx      Digest // of its index
	Bytes    int64
	IdxBytes int64
	Objects  int64
	Kind     PackKind
}

// PackLine is a line of a repository's manifest.
type PackLine struct {
	Pack
	Stamp ShardTime // of the entry that added it
	Index uint64    // of that entry
}

// RefQuery asks for a page of refs, in byte order.
type RefQuery struct {
	Repo   string
	Prefix string
	Globs  []string // any of these must match; none = all
	After  string   // names after this one
	Limit  int
	Admin  bool // hidden ones too

	// AfterRev is of a list in the order of changes, which goes on after the ref of this revision and of the name After.
	AfterRev uint64
}
