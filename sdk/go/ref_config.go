package millrace

import (
	"math"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// RepoConfig is the settings of a repository. A zero field means its default.
//
// What is out of bounds is refused with ErrInvalid, which names the field, such as config.rules[0].refs; too many rules, or texts of
// a list, with ErrTooLarge.
type RepoConfig struct {
	Version    uint64    // rises by one with each change; not looked at when settings are sent
	State      RepoState // whether refs may move
	Hide       []string  // globs of refs that are neither listed nor changed without the right ref:admin; at most 1,000
	Rules      []RefRule // that protect refs, at most 64; all that match a ref must allow its change
	ReflogDays int       // days that entries of a ref's log are kept; default 90
	ReflogMax  int       // entries of a ref's log that are kept, at most 10,000; default 1,000
	MaxBytes   int64     // of all packs together; default 10 GiB
	MaxPush    int64     // bytes of one push; default 512 MiB
}

// RefRule protects the refs whose names match a glob. In it * stands for any bytes within a component, ** for any.
type RefRule struct {
	Refs   string    // the glob; required
	Deny   []RefDeny // what it forbids; empty: nothing
	Except []string  // principals that it does not bind, at most 1,000
	Only   RefDoor   // the only way that its refs may move by
	Queue  string    // with OnlyEffects: only the completions of this queue's tasks may move them; empty: those of any
}

// RepoState says whether the refs of a repository may move.
type RepoState uint8

// The states of a repository.
const (
	RepoReady     RepoState = iota // as their rules say
	RepoImporting                  // by the API only, not by a push
	RepoArchived                   // not at all
)

// RefDeny is a kind of change that a rule forbids.
type RefDeny uint8

// What a rule may forbid.
const (
	DenyCreate RefDeny = iota + 1 // refs that do not exist
	DenyUpdate                    // any move of a ref that exists
	DenyDelete
	DenyForce // a move to an object that does not descend from the one before
)

// RefDoor is a way by which refs move.
type RefDoor uint8

// The ways. A rule without one is of AnyDoor.
const (
	AnyDoor     RefDoor = iota
	OnlyAPI             // requests of this SDK, of REST, or of others that speak the contract
	OnlyPush            // git push
	OnlyEffects         // effects of tasks
)

var (
	// The words of the enumerations, by their numbers in the contract.
	repoStates = [...]string{RepoReady: "ready", RepoImporting: "importing", RepoArchived: "archived"}
	refDenials = [...]string{DenyCreate: "create", DenyUpdate: "update", DenyDelete: "delete", DenyForce: "force"}
	refDoors   = [...]string{AnyDoor: "any", OnlyAPI: "api", OnlyPush: "push", OnlyEffects: "effects"}
)

// String returns ready, importing or archived.
func (s RepoState) String() string { return wordOf(repoStates[:], uint8(s)) }

// ParseRepoState reads what String returns.
func ParseRepoState(word string) (RepoState, bool) {
	n, ok := numberOf(repoStates[:], word)
	return RepoState(n), ok
}

// String returns create, update, delete or force.
func (d RefDeny) String() string { return wordOf(refDenials[:], uint8(d)) }

// ParseRefDeny reads what String returns.
func ParseRefDeny(word string) (RefDeny, bool) {
	n, ok := numberOf(refDenials[:], word)
	return RefDeny(n), ok
}

// String returns any, api, push or effects.
func (d RefDoor) String() string { return wordOf(refDoors[:], uint8(d)) }

// ParseRefDoor reads what String returns.
func ParseRefDoor(word string) (RefDoor, bool) {
	n, ok := numberOf(refDoors[:], word)
	return RefDoor(n), ok
}

// wordOf returns the word of a number, and unknown for one that a newer server made.
func wordOf(words []string, n uint8) string {
	if int(n) < len(words) && words[n] != "" {
		return words[n]
	}
	return "unknown"
}

// numberOf returns the number of a word; false for what is not one.
func numberOf(words []string, word string) (uint8, bool) {
	for i, w := range words {
		if w == word && w != "" {
			return uint8(i), true
		}
	}
	return 0, false
}

// message is c in the contract; nil stays nil, and means the defaults.
func (c *RepoConfig) message() *millracev1.RepoConfig {
	if c == nil {
		return nil
	}
	out := &millracev1.RepoConfig{
		Version: c.Version, State: millracev1.Repo_State(c.State), Hide: c.Hide, ReflogDays: clamp(c.ReflogDays),
		ReflogMax: clamp(c.ReflogMax), MaxBytes: c.MaxBytes, MaxPush: c.MaxPush,
	}
	for _, r := range c.Rules {
		rule := &millracev1.RefRule{Refs: r.Refs, Except: r.Except, Only: millracev1.RefRule_Only(r.Only), Queue: r.Queue}
		for _, d := range r.Deny {
			rule.Deny = append(rule.Deny, millracev1.RefRule_Deny(d))
		}
		out.Rules = append(out.Rules, rule)
	}
	return out
}

// clamp brings n within the numbers of the contract. What is beyond them is beyond every bound of the server, which refuses it.
func clamp(n int) int32 { return int32(min(max(n, math.MinInt32), math.MaxInt32)) }

// repoConfigOf reads the settings of the contract; nil is the defaults.
func repoConfigOf(c *millracev1.RepoConfig) RepoConfig {
	out := RepoConfig{
		Version: c.GetVersion(), State: RepoState(c.GetState()), Hide: c.GetHide(), ReflogDays: int(c.GetReflogDays()),
		ReflogMax: int(c.GetReflogMax()), MaxBytes: c.GetMaxBytes(), MaxPush: c.GetMaxPush(),
	}
	for _, r := range c.GetRules() {
		rule := RefRule{Refs: r.GetRefs(), Except: r.GetExcept(), Only: RefDoor(r.GetOnly()), Queue: r.GetQueue()}
		for _, d := range r.GetDeny() {
			rule.Deny = append(rule.Deny, RefDeny(d))
		}
		out.Rules = append(out.Rules, rule)
	}
	return out
}
