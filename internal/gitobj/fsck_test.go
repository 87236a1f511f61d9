package gitobj

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// object writes an object of any content, as git itself would not make it.
func (s source) object(kind, content string) string {
	s.t.Helper()
	return s.feed(content, "hash-object", "--literally", "-t", kind, "-w", "--stdin")
}

// tree makes a tree of entries, each a mode, a name and an id.
func (s source) tree(entries ...[3]string) string {
	s.t.Helper()
	var b strings.Builder
	for _, e := range entries {
		id, err := core.ParseObjectID(e[2])
		if err != nil {
			s.t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %s\x00%s", e[0], e[1], id[:])
	}
	return s.object("tree", b.String())
}

// odd is an object that git's fsck complains of.
type odd struct {
	id    string // how it names that
	top   string // what a branch or tag would point to
	about string // the object it is about, if that is another
}

const person = "a <a@a> 1700000000 +0000"

func (s source) commitOf(tree, author string) string {
	s.t.Helper()
	return s.object("commit", "tree "+tree+"\nauthor "+author+"\ncommitter "+person+"\n\nm\n")
}

// TestWellKnownHistoriesAreTaken pushes objects as they are in old histories of projects that the big hosts carry.
func TestWellKnownHistoriesAreTaken(t *testing.T) {
	r, s := newRig(t), newSource(t)
	blob := s.object("blob", "content\n")
	good := s.tree([3]string{"100644", "f", blob})
	padded := s.tree([3]string{"040000", "d", good})
	tag := func(tagger string) string {
		return s.object("tag", "object "+s.commitOf(good, person)+"\ntype commit\ntag v1\n"+tagger+"\nm\n")
	}
	for _, o := range []odd{
		{"badTimezone", s.commitOf(good, "a <a@a> 1313584730 +051800"), ""},
		{"badTimezone, of a committer", s.object("commit", "tree "+good+"\nauthor "+person+"\ncommitter a <a@a> 1 +1\n\nm\n"), ""},
		{"zeroPaddedFilemode", s.commitOf(padded, person), ""},
		{"missingSpaceBeforeDate", s.commitOf(good, "a <a@a>1313584730 +0000"), ""},
		{"missingSpaceBeforeDate, of a tagger without a date", tag("tagger a <a@a>\n"), ""},
		{"missingSpaceBeforeEmail", s.commitOf(good, "a<a@a> 1313584730 +0000"), ""},
		{"missingNameBeforeEmail", s.commitOf(good, "<a@a> 1313584730 +0000"), ""},
		{"missingEmail", s.commitOf(good, "a 1313584730 +0000"), ""},
		{"badName", s.commitOf(good, "a> <a@a> 1313584730 +0000"), ""},
		{"badEmail", s.commitOf(good, "a <a@<a> 1313584730 +0000"), ""},
		{"badDate, after an address that is there twice", s.commitOf(good, "a <a@a> <a@a> 1305038239 -0700"), ""},
		{"badDate", s.commitOf(good, "a <a@a> yesterday +0000"), ""},
		{"zeroPaddedDate", s.commitOf(good, "a <a@a> 0123 +0000"), ""},
		{"multipleAuthors", s.commitOf(good, person+"\nauthor b <b@b> 1700000000 +0000"), ""},
		{"missingTaggerEntry", tag(""), ""},
		{"badFilemode, which is group-writable", s.commitOf(s.tree([3]string{"100664", "f", blob}), person), ""},
		{"badFilemode, which everybody may do all with", s.commitOf(s.tree([3]string{"100777", "f", blob}), person), ""},
		{"badFilemode, which everybody may write", s.commitOf(s.tree([3]string{"100666", "f", blob}), person), ""},
		{"badFilemode, which takes its group's rights", s.commitOf(s.tree([3]string{"104755", "f", blob}), person), ""},
		{"badFilemode, of a directory", s.commitOf(s.tree([3]string{"40755", "d", good}), person), ""},
		{"zeroPaddedFilemode, of a file", s.commitOf(s.tree([3]string{"0100644", "f", blob}), person), ""},
		{"gitignoreSymlink", s.commitOf(s.tree([3]string{"120000", ".gitignore", blob}), person), ""},
		{"mailmapSymlink", s.commitOf(s.tree([3]string{"120000", ".mailmap", blob}), person), ""},
	} {
		id, err := core.ParseObjectID(o.top)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.push(s.pack(o.top), []core.ObjectID{id}); err != nil {
			t.Errorf("%s: %v", o.id, err)
		}
	}
}

// TestWhatHarmsACloneIsRefusedWithItsObject: trees that write where they should not, settings that run programs, dates that
// overflow, and objects that cannot be told apart. The refusal names the object, what is wrong and that it was refused.
func TestWhatHarmsACloneIsRefusedWithItsObject(t *testing.T) {
	r, s := newRig(t), newSource(t)
	blob := s.object("blob", "content\n")
	good := s.tree([3]string{"100644", "f", blob})
	bad := func(id string, entries ...[3]string) odd {
		tree := s.tree(entries...)
		return odd{id, s.commitOf(tree, person), tree}
	}
	modules := func(id, content string) odd {
		b := s.object("blob", content)
		return odd{id, s.commitOf(s.tree([3]string{"100644", ".gitmodules", b}), person), b}
	}
	commit := func(id, author string) odd {
		c := s.commitOf(good, author)
		return odd{id, c, c}
	}
	attributes := s.object("blob", strings.Repeat("a", 3000)+" text\n")
	nul := s.object("commit", "tree "+good+"\nauthor "+person+"\ncommitter "+person+"\n\nm\x00hidden\n")
	for _, o := range []odd{
		bad("hasDotgit", [3]string{"40000", ".git", good}),
		bad("hasDotgit", [3]string{"40000", ".GiT", good}),
		bad("hasDotgit", [3]string{"40000", "git~1", good}),
		bad("hasDotgit", [3]string{"40000", ".g\u200cit", good}),
		bad("hasDot", [3]string{"40000", ".", good}),
		bad("hasDotdot", [3]string{"40000", "..", good}),
		bad("fullPathname", [3]string{"100644", "a/b", blob}),
		bad("duplicateEntries", [3]string{"100644", "f", blob}, [3]string{"100644", "f", blob}),
		bad("treeNotSorted", [3]string{"100644", "g", blob}, [3]string{"100644", "f", blob}),
		bad("gitmodulesSymlink", [3]string{"120000", ".gitmodules", blob}),
		bad("gitattributesSymlink", [3]string{"120000", ".gitattributes", blob}),
		bad("gitattributesSymlink", [3]string{"120000", ".GITATTRIBUTES", blob}),
		modules("gitmodulesName", "[submodule \"../../a\"]\n\tpath = a\n\turl = https://x/y\n"),
		modules("gitmodulesUrl", "[submodule \"a\"]\n\tpath = a\n\turl = -u./payload\n"),
		modules("gitmodulesPath", "[submodule \"a\"]\n\tpath = -a\n\turl = https://x/y\n"),
		modules("gitmodulesUpdate", "[submodule \"a\"]\n\tpath = a\n\turl = https://x/y\n\tupdate = !run\n"),
		{"gitattributesLineLength", s.commitOf(s.tree([3]string{"100644", ".gitattributes", attributes}), person), attributes},
		commit("badDateOverflow", "a <a@a> 18446744073709551617 +0000"),
		{"nulInCommit", nul, nul},
	} {
		id, err := core.ParseObjectID(o.top)
		if err != nil {
			t.Fatal(err)
		}
		err = r.push(s.pack(o.top), []core.ObjectID{id})
		f, ok := errors.AsType[*FailedError](err)
		if !ok || !strings.Contains(f.Line, "object "+o.about+": "+o.id+": ") || !strings.Contains(f.Line, "fsck error in pack") || len(f.Error()) > 450 {
			t.Errorf("%s: %v", o.id, err)
		}
		if r.typeOf(id) != core.ObjectMissing {
			t.Errorf("%s: it is there", o.id)
		}
	}
}

// TestARefusalNamesItsObjectAfterManyWarnings: git warns of an object in each line, and dies at the first error.
func TestARefusalNamesItsObjectAfterManyWarnings(t *testing.T) {
	r, s := newRig(t), newSource(t)
	good := s.commitOf(s.tree([3]string{"100644", "f", s.object("blob", "content\n")}), person)
	var revs []string
	for i := range 100 {
		revs = append(revs, s.object("tag", fmt.Sprintf("object %s\ntype commit\ntag v%d\n\nm\n", good, i))) // without a tagger
	}
	tree := s.tree([3]string{"40000", "..", s.tree()})
	bad := s.commitOf(tree, person)
	err := r.push(s.pack(append(revs, bad)...), nil)
	if f, ok := errors.AsType[*FailedError](err); !ok || f.Line != "object "+tree+": hasDotdot: contains '..'; fsck error in packed object" {
		t.Errorf("%v", err)
	}
	if err := r.push(s.pack(revs...), nil); err != nil {
		t.Errorf("the warnings alone: %v", err)
	}
}
