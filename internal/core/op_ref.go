package core

// Limits of a transaction of refs.
const (
	MaxRefChanges = 10_000
	MaxRefName    = 1024 // bytes
	MaxRefMessage = 1024 // bytes
	MaxTxnPacks   = 16
	MaxSwapPacks  = 1000
	MaxPushOption = 32 // options of a push, each of at most 1 KiB
)

// Limits of the settings of a repository.
const (
	MaxRepoRules   = 64 // each change of a ref looks at all of them
	MaxRepoHide    = 64
	MaxRefGlob     = 256 // bytes
	MaxRefStars    = 16  // of a glob, so that matching stays cheap
	MaxRuleNames   = 64  // principals that a rule excepts
	MaxRuleName    = 128 // bytes of such a name, of a queue, and of a tag
	MaxReflogDays  = 3650
	MaxReflogItems = 10_000 // of one ref
)

// Ancestry is what a proposer found out about an update: whether the new commit descends from the old one. Numbers are
// in entries.
type Ancestry uint8

// What may be known of an update.
const (
	AncestryUnknown Ancestry = 0
	FastForward     Ancestry = 1
	Forced          Ancestry = 2
)

// Move is a ref's way from one object to another.
type Move struct{ From, To ObjectID }

// RefChange is one change, or condition, of a transaction.
type RefChange struct {
	Kind OpKind // OpRefCreate, OpRefUpdate, OpRefDelete, OpRefVerify, OpSymref...
	Name string

	HasOld bool // Old is compared: zero = the ref must not exist
	Old    ObjectID
	New    ObjectID // OpRefUpdate: zero = delete

	Target       string // of the symbolic ref that is made or must be there
	HasOldTarget bool   // OldTarget is compared: empty = must not exist
	OldTarget    string

	NoDeref   bool // changes the symbolic ref itself, not what it points to
	MissingOK bool // OpRefDelete: a ref that is not there does not fail
	Message   string

	// Facts, written by the proposer: Apply looks at no object.
	Type     ObjectType // of New; ObjectMissing when it is not held
	Peeled   ObjectID   // what the tag New finally points to; zero when New is not a tag
	Base     ObjectID   // the old id that Ancestry speaks of
	Ancestry Ancestry
}

// RefTxn changes refs of one repository: all of Changes or, with Partial, each that may. The order of the changes means
// nothing, but with Partial, where one stands after another. A commit holds at most one for each repository.
type RefTxn struct {
	Repo    string
	Tag     string // of the repository, if it has one: with it, its place is known
	ID      RepoID // if set, the repository that was meant by the name
	Changes []RefChange
	Partial bool
	Message string // of changes that have none of their own

	Push     RequestID // of a push: its id
	Packs    []Pack    // that hold new objects, durable already; the first commit that names one adds it
	StagedAt ShardTime // when they became so; refused 30 minutes later
	Epoch    uint32    // of the repository, when the facts were checked
	Options  []string  // of a push, as they came
	Via      Via
	Admin    bool // the principal may change hidden refs
	NoForce  bool // the principal may not force an update
}

// Grows reports whether the transaction may take room on the disk: whether anything in it is more than a deletion or a
// comparison.
func (op *RefTxn) Grows() bool {
	if len(op.Packs) > 0 {
		return true
	}
	for i := range op.Changes {
		switch c := &op.Changes[i]; c.Kind {
		case OpRefDelete, OpRefVerify, OpSymrefDelete, OpSymrefVerify:
		default:
			if c.Kind != OpRefUpdate || !c.New.IsZero() {
				return true
			}
		}
	}
	return false
}

// RepoCreate makes a repository; its HEAD points to a branch that does not exist yet.
type RepoCreate struct {
	Name   string
	ID     RepoID
	Tag    string // places the repository; empty = its name
	Branch string // the default branch without refs/heads/; empty = main
	Config RepoConfig
}

// RepoSet replaces the settings of a repository.
type RepoSet struct {
	Name      string
	Branch    string // if not empty, HEAD points to this branch from now on
	Config    RepoConfig
	IfVersion int64 // -1 = any
}

// RepoDelete frees a repository's name. What it holds goes 7 days later.
type RepoDelete struct {
	Name      string
	IfVersion int64 // -1 = any
}

// RepoUndelete brings a deleted repository back under its name.
type RepoUndelete struct {
	Name string
	ID   RepoID // zero = the one of that name that was deleted last
}

// PackSwap puts one pack in the place of several that hold the same objects, all at once or, when one of them is not in the
// manifest any more, not at all. No ref changes by it.
type PackSwap struct {
	Repo     string
	ID       RepoID
	Old      []Digest
	New      Pack // durable already, of kind PackRollup
	StagedAt ShardTime
	Epoch    uint32
}

// Kind returns the op's number.
func (*PackSwap) Kind() OpKind { return OpPackSwap }

func (op *PackSwap) repo() string { return op.Repo }

// Kind returns the op's number.
func (*RefTxn) Kind() OpKind { return OpRefTxn }

func (op *RefTxn) repo() string { return op.Repo }

func (op *RefTxn) place(partitions int) (uint16, bool) {
	return PlaceRepo(op.Repo, op.Tag, partitions), true
}

// Kind returns the op's number.
func (*RepoCreate) Kind() OpKind { return OpRepoCreate }

func (op *RepoCreate) repo() string { return op.Name }

// Kind returns the op's number.
func (*RepoSet) Kind() OpKind { return OpRepoSet }

func (op *RepoSet) repo() string { return op.Name }

// Kind returns the op's number.
func (*RepoDelete) Kind() OpKind { return OpRepoDelete }

func (op *RepoDelete) repo() string { return op.Name }

// Kind returns the op's number.
func (*RepoUndelete) Kind() OpKind { return OpRepoUndelete }

func (op *RepoUndelete) repo() string { return op.Name }

// Place returns the partition of a repository: by its tag, else by its name.
func (op *RepoCreate) Place(partitions int) uint16 { return PlaceRepo(op.Name, op.Tag, partitions) }

// PlaceRepo returns the partition of a repository of that name and tag.
func PlaceRepo(name, tag string, partitions int) uint16 {
	if tag != "" {
		return PlaceText([]byte(tag), partitions)
	}
	return PlaceText([]byte(name), partitions)
}

// RefsAnswer is what an op of the refs service answers.
type RefsAnswer struct {
	Repo    RepoID
	Rev     uint64      // of the repository, after the commit
	Changes []RefResult // RefTxn: one per change
}

// RefResult is what became of one change. A verified ref has Old and New alike.
type RefResult struct {
	Old, New ObjectID
	Failure  *RefFailure // of a partial transaction: why nothing happened
}

// RefReason says why a change was refused. Numbers are stored, in results.
type RefReason uint8

// The reasons. Their names are those of the contract.
const (
	RefMismatch        RefReason = 1  // ref_mismatch: Expected, Actual, or the targets in their place
	RefObjectMissing   RefReason = 2  // object_missing: Expected is the id
	RefObjectNotCommit RefReason = 3  // object_not_commit: Expected is the id, Type
	RefNotSymbolic     RefReason = 4  // ref_not_symbolic
	RefSymrefDepth     RefReason = 5  // symref_depth
	RefRepoReadOnly    RefReason = 6  // repo_read_only
	RefExists          RefReason = 7  // ref_exists
	RefNotFound        RefReason = 8  // ref_not_found
	RefBadName         RefReason = 9  // ref_name: Other is the rule
	RefConflict        RefReason = 10 // ref_conflict: Other is the existing ref
	RefTxnConflict     RefReason = 11 // txn_conflict: Other is the ref of the same transaction
	RefDuplicate       RefReason = 12 // ref_duplicate
	RefProtected       RefReason = 13 // ref_protected: Other is the rule
	RefHidden          RefReason = 14 // ref_hidden
	RefRepoNotFound    RefReason = 15 // repo_not_found
	RefRepoExists      RefReason = 16 // repo_exists
	RefPackExpired     RefReason = 17 // pack_unavailable: staged too long ago
	RefCheckStale      RefReason = 18 // check_stale: the facts are of an older epoch, or of packs that are gone
	RefScope           RefReason = 19 // scope: Other is the one that is missing
	RefLimit           RefReason = 20 // limit: Other is its name
)

// RefFailure is one failed change: its position in the transaction, or -1 for the whole, and why.
type RefFailure struct {
	Change int
	Reason RefReason
	// The ref, as the change names it; empty where the whole is refused.
	Name string
	// What these hold depends on Reason: the constants say it.
	Expected ObjectID
	Actual   ObjectID
	Type     ObjectType
	Other    string
}

// MaxRefFailures is how many failures a refusal lists.
const MaxRefFailures = 100
