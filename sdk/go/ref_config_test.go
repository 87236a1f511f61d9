package millrace

import (
	"math"
	"reflect"
	"strings"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// TestNumbersAndWordsOfRefsAreThoseOfTheContract holds the plain types to the enumerations that they are sent as.
func TestNumbersAndWordsOfRefsAreThoseOfTheContract(t *testing.T) {
	for kind, want := range map[RefChangeKind]pb.RefChange_Kind{
		ChangeCreate: pb.RefChange_CREATE, ChangeUpdate: pb.RefChange_UPDATE, ChangeDelete: pb.RefChange_DELETE,
		ChangeVerify: pb.RefChange_VERIFY, ChangeSymrefCreate: pb.RefChange_SYMREF_CREATE, ChangeSymrefUpdate: pb.RefChange_SYMREF_UPDATE,
		ChangeSymrefDelete: pb.RefChange_SYMREF_DELETE, ChangeSymrefVerify: pb.RefChange_SYMREF_VERIFY,
	} {
		if got := NewRefChange(RefChangeSpec{Kind: kind}).c.GetKind(); got != want {
			t.Errorf("kind %d is sent as %s, want %s", kind, got, want)
		}
	}
	check := func(names map[int32]string, word func(n uint8) string, parse func(word string) (uint8, bool)) {
		for n, name := range names {
			if name == "DENY_UNSPECIFIED" {
				name = "unknown"
			}
			if got := word(uint8(n)); got != strings.ToLower(name) {
				t.Errorf("%d is called %s, want %s", n, got, name)
			}
			if got, ok := parse(strings.ToLower(name)); name != "unknown" && (!ok || int32(got) != n) {
				t.Errorf("%s is read as %d, %v", name, got, ok)
			}
		}
		if got, ok := parse(word(200)); ok {
			t.Errorf("what a newer server made is read as %d", got)
		}
	}
	check(pb.Repo_State_name, func(n uint8) string { return RepoState(n).String() }, func(w string) (uint8, bool) {
		s, ok := ParseRepoState(w)
		return uint8(s), ok
	})
	check(pb.RefRule_Deny_name, func(n uint8) string { return RefDeny(n).String() }, func(w string) (uint8, bool) {
		d, ok := ParseRefDeny(w)
		return uint8(d), ok
	})
	check(pb.RefRule_Only_name, func(n uint8) string { return RefDoor(n).String() }, func(w string) (uint8, bool) {
		d, ok := ParseRefDoor(w)
		return uint8(d), ok
	})
}

func TestSettingsOfARepositoryAreReadAsTheyAreSent(t *testing.T) {
	in := RepoConfig{
		Version: 3, State: RepoArchived, Hide: []string{"refs/a/**"}, ReflogDays: 4, ReflogMax: 5, MaxBytes: 6, MaxPush: 7,
		Rules: []RefRule{
			{Refs: "refs/**", Deny: []RefDeny{DenyDelete, DenyForce}, Except: []string{"p"}, Only: OnlyEffects, Queue: "q"},
			{Refs: "refs/b", Only: OnlyPush},
		},
	}
	if got := repoConfigOf(in.message()); !reflect.DeepEqual(got, in) {
		t.Errorf("got %+v, want %+v", got, in)
	}
	if got := repoConfigOf((*RepoConfig)(nil).message()); !reflect.DeepEqual(got, RepoConfig{}) {
		t.Errorf("got %+v, want the defaults", got)
	}
	if got := (&RepoConfig{ReflogMax: math.MaxInt, ReflogDays: math.MinInt}).message(); got.ReflogMax != math.MaxInt32 || got.ReflogDays != math.MinInt32 {
		t.Errorf("numbers beyond the contract are sent as %d and %d", got.ReflogMax, got.ReflogDays)
	}
}
