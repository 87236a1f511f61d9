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

// Member is what a data directory remembers of the settings it was first started with. Its log holds the votes and the
// entries of one node of one cluster: started as another it could vote twice, or bring a history that the others do not
// have.
type Member struct {
	Format  int      `json:"format"`
	Cluster string   `json:"cluster_id,omitempty"` // empty: a server by itself
	Node    uint64   `json:"node_id,omitempty"`
	Nodes   []uint64 `json:"nodes,omitempty"`   // of the cluster, ascending
	Replica uint64   `json:"replica,omitempty"` // 0: the node's number
	// Joined says that the cluster took the node in when it ran already. Its settings name no other nodes: who they were is
	// in Members, until its replica of the directory says who they are.
	Joined  bool           `json:"joined,omitempty"`
	Members []JoinedMember `json:"members,omitempty"`
	Removed bool           `json:"removed,omitempty"` // from the cluster: it never starts again
	Shards  int            `json:"shards"`
	// Entries is the format that its log may have entries of, where that is above the first.
	Entries uint16 `json:"entries,omitempty"`
}

// JoinedMember is a member of the cluster, as it was when a node was taken in.
type JoinedMember struct {
	Replica uint64 `json:"replica"`
	Node    uint64 `json:"node"`
	Name    string `json:"name,omitempty"`
	Peer    string `json:"peer"`
	API     string `json:"api,omitempty"`
	HTTP    string `json:"http,omitempty"`
}

// Names in the data directory, in addition to those of package store.
const (
	memberName   = "MEMBER"
	memberTemp   = "MEMBER.tmp"
	memberFormat = 1
	memberBytes  = 64 << 10 // one is about 200 bytes; with 32 members at most 40 KiB
)

// memberFile is the content of the file. The checksum covers the text of the member.
type memberFile struct {
	Member json.RawMessage `json:"member"`
	CRC32C string          `json:"crc32c"` // 8 hexadecimal digits
}

// OtherMemberError says that a data directory was made for other settings than those it was to be started with. Nothing
// in it was changed.
type OtherMemberError struct {
	Dir     string
	Setting string // by its flag
	Made    string // what the directory was made for
	Given   string // what the settings say
}

// Error names the setting, and both values.
func (e *OtherMemberError) Error() string {
	return fmt.Sprintf("data directory %s was made for %s %s, and the settings say %s", e.Dir, e.Setting, e.Made, e.Given)
}

// member is what the settings make of a directory.
func (o Options) member() Member {
	m := Member{Format: memberFormat, Cluster: strings.ToLower(o.Cluster.ID), Node: o.Cluster.Node, Shards: o.Shards}
	for _, p := range o.Cluster.Peers {
		m.Nodes = append(m.Nodes, p.ID)
	}
	slices.Sort(m.Nodes)
	return m
}

// differs compares what a directory was made for with the settings, most telling first.
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

func nodeList(ids []uint64) string {
	text := make([]string, len(ids))
	for i, id := range ids {
		text[i] = fmt.Sprint(id)
	}
	return "nodes " + strings.Join(text, ", ")
}

// checkMember holds a data directory to the settings that it was made with, if it remembers any.
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

// readMember reads what a directory remembers. Errors: *errs.Corruption, and those of the file system.
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

// writeMember makes the file durable under a temporary name, and then gives it its own.
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

func memberSum(b []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}
