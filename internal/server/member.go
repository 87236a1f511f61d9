package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/node"
)

// Member is what a data directory remembers of the settings that it was made with. Its log holds
// the votes and the entries of one node of one cluster. A server that started on it as another node
// could vote twice, or bring entries that the others do not have.
type Member struct {
	// Format is the form of the file.
	Format  int      `json:"format"`
	Cluster string   `json:"cluster_id,omitempty"` // empty: a server by itself
	Node    uint64   `json:"node_id,omitempty"`
	Nodes   []uint64 `json:"nodes,omitempty"`   // of the cluster, ascending
	Replica uint64   `json:"replica,omitempty"` // 0: the node's number
	// The cluster admitted the node when it ran already. The node's settings name no other nodes,
	// so Members has those of that moment; they count until the node's own replica of the directory
	// says who the members are.
	Joined  bool           `json:"joined,omitempty"`
	Members []JoinedMember `json:"members,omitempty"`
	Version uint64         `json:"version,omitempty"` // of the directory that Members are from; 0: not known
	Removed bool           `json:"removed,omitempty"` // from the cluster: it never starts again
	// Number of shards; fixed.
	Shards int `json:"shards"`
	// Entries is the format that its log may have entries of, where that is above the first.
	Entries uint16 `json:"entries,omitempty"`
}

// JoinedMember is a member of the cluster at the time when this node was admitted.
type JoinedMember struct {
	Replica uint64 `json:"replica"`
	Node    uint64 `json:"node"`
	Name    string `json:"name,omitempty"`
	Peer    string `json:"peer"`
	API     string `json:"api,omitempty"`
	HTTP    string `json:"http,omitempty"`
}

// Files in the data directory, in addition to those of package store. memberFormat is the form of
// the file; memberBytes bounds it: a usual one has about 200 bytes, one with 32 members at most 40
// KiB.
const (
	// memberName is the file in force; memberTemp becomes it by a rename.
	memberName   = "MEMBER"
	memberTemp   = "MEMBER.tmp"
	memberFormat = 1
	memberBytes  = 64 << 10 // one is about 200 bytes; with 32 members at most 40 KiB
)

// memberFile is the content of the file. The checksum covers the bytes of Member as they are
// written.
type memberFile struct {
	Member json.RawMessage `json:"member"`
	CRC32C string          `json:"crc32c"` // 8 hexadecimal digits
}

// OtherMemberError says that a data directory was made for other settings than those that a server
// was started with. Nothing in the directory was changed.
type OtherMemberError struct {
	// Dir is the path of the directory.
	Dir     string
	Setting string // by its flag
	Made    string // what the directory was made for
	Given   string // what the settings say
}

// Error names the setting, and both values.
func (e *OtherMemberError) Error() string {
	return fmt.Sprintf("data directory %s was made for %s %s, and the settings say %s", e.Dir, e.Setting, e.Made, e.Given)
}

// member returns what a new directory with these settings remembers.
func (o Options) member() Member {
	m := Member{Format: memberFormat, Cluster: strings.ToLower(o.Cluster.ID), Node: o.Cluster.Node, Shards: o.Shards}
	for _, p := range o.Cluster.Peers {
		m.Nodes = append(m.Nodes, p.ID)
	}
	slices.Sort(m.Nodes)
	return m
}

// differs returns an error for the first difference between m and the settings, in the order of how
// much a difference says. The nodes are not compared if the node joined later, as its settings need
// not name them.
func (m Member) differs(dir string, given Member) error {
	no := func(setting, made, given string) error {
		return &OtherMemberError{Dir: dir, Setting: setting, Made: made, Given: given}
	}
	name := func(cluster string) string {
		if cluster == "" {
			return "none (a server by itself)"
		}
		return cluster
	}
	switch {
	case m.Cluster != given.Cluster:
		return no("cluster-id", name(m.Cluster), name(given.Cluster))
	case m.Node != given.Node:
		return no("node-id", fmt.Sprint(m.Node), fmt.Sprint(given.Node))
	case !m.Joined && !slices.Equal(m.Nodes, given.Nodes):
		return no("peers", nodeList(m.Nodes), nodeList(given.Nodes))
	case m.Shards != given.Shards:
		return no("shards", fmt.Sprint(m.Shards), fmt.Sprint(given.Shards))
	}
	return nil
}

// nodeList formats numbers of nodes for messages.
func nodeList(ids []uint64) string {
	text := make([]string, len(ids))
	for i, id := range ids {
		text[i] = fmt.Sprint(id)
	}
	return "nodes " + strings.Join(text, ", ")
}

// checkMember compares the settings with what the directory remembers. found is false if it
// remembers nothing, as a new directory or one of an early version does; m is then made from the
// settings. A node that was removed from its cluster never starts again.
func checkMember(fsys env.FS, dir string, given Member) (m Member, found bool, err error) {
	m, found, err = readMember(fsys, dir)
	switch {
	case err != nil || !found:
		return given, false, err
	case m.Removed:
		return m, true, &node.RemovedError{Node: m.Node, Replica: cmp.Or(m.Replica, m.Node)}
	}
	return m, true, m.differs(dir, given)
}

// readMember reads what a directory remembers. Errors: *errs.Corruption for damaged bytes,
// *OtherMemberError and *core.NewerFormatError for a newer program's, and those of the file system.
func readMember(fsys env.FS, dir string) (m Member, found bool, err error) {
	name := filepath.Join(dir, memberName)
	b, err := env.ReadFile(fsys, name, memberBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return m, false, nil
	}
	if err != nil {
		return m, false, fmt.Errorf("read %s: %w", name, err)
	}
	var file memberFile
	if err := json.Unmarshal(b, &file); err != nil {
		return m, false, errs.Corruptf("%s: %v", name, err)
	}
	if sum := memberSum(file.Member); sum != file.CRC32C {
		return m, false, errs.Corruptf("%s: checksum %s, content has %s", name, file.CRC32C, sum)
	}
	if err := json.Unmarshal(file.Member, &m); err != nil {
		return m, false, errs.Corruptf("%s: %v", name, err)
	}
	if m.Format != memberFormat {
		return m, false, &OtherMemberError{Dir: dir, Setting: memberName + " in format", Made: fmt.Sprint(m.Format), Given: fmt.Sprint(memberFormat)}
	}
	if m.Entries > core.NewestFormat() {
		return m, false, &core.NewerFormatError{Of: "the cluster of data directory " + dir, Found: m.Entries, Known: core.NewestFormat()}
	}
	return m, true, nil
}

// writeMember writes the file under a temporary name, syncs it and renames it, then syncs the
// directory. A crash at any point leaves the old file or the new one, whole.
func writeMember(fsys env.FS, dir string, m Member) error {
	text, err := json.Marshal(m)
	if err == nil {
		text, err = json.Marshal(memberFile{Member: text, CRC32C: memberSum(text)})
	}
	if err != nil {
		return fmt.Errorf("encode %s: %w", memberName, err)
	}
	name, temp := filepath.Join(dir, memberName), filepath.Join(dir, memberTemp)
	f, err := fsys.Create(temp)
	if err != nil {
		return fmt.Errorf("write %s: %w", temp, err)
	}
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", temp, err)
	}
	if err := fsys.Rename(temp, name); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := env.SyncDir(fsys, dir); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// memberSum returns the checksum in 8 hexadecimal digits.
func memberSum(b []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}
