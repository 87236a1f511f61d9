package rest_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// keyPage is a page of keys, with keys and prefixes as they are.
type keyPage struct {
	keys, values, prefixes []string
	sizes                  []int
	cursor                 string
}

// keysOf reads a page of the keyspace ks.
func (d *door) keysOf(query url.Values) (out keyPage) {
	d.t.Helper()
	var body struct {
		Items []struct {
			Key, Value string
			Key64      string `json:"key_base64"`
			Value64    string `json:"value_base64"`
			Size       *int
		}
		Prefixes []struct {
			Prefix   string
			Prefix64 string `json:"prefix_base64"`
		}
		Cursor string
	}
	if err := json.Unmarshal(d.do(mail, http.MethodGet, "/v1/kv/ks?"+query.Encode(), "").want(d.t, 200).body, &body); err != nil {
		d.t.Fatal(err)
	}
	bytesOf := func(text, encoded string) string {
		b, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			d.t.Error(err)
		}
		return text + string(b)
	}
	for _, i := range body.Items {
		out.keys, out.values = append(out.keys, bytesOf(i.Key, i.Key64)), append(out.values, bytesOf(i.Value, i.Value64))
		if i.Size != nil {
			out.sizes = append(out.sizes, *i.Size)
		}
	}
	for _, p := range body.Prefixes {
		out.prefixes = append(out.prefixes, bytesOf(p.Prefix, p.Prefix64))
	}
	out.cursor = body.Cursor
	return out
}

// allKeysOf reads all pages of a query.
func (d *door) allKeysOf(query url.Values) (all keyPage) {
	d.t.Helper()
	for {
		page := d.keysOf(query)
		all.keys, all.prefixes = append(all.keys, page.keys...), append(all.prefixes, page.prefixes...)
		if page.cursor == "" {
			return all
		}
		query.Set("cursor", page.cursor)
	}
}

func TestKeysAreListedByDelimiterInBothOrders(t *testing.T) {
	for _, partitions := range []int{1, 3} {
		d := openDoorOf(t, 2, mail)
		d.do(mail, http.MethodPost, "/v1/namespace", fmt.Sprintf(`{"partitions": %d}`, partitions)).want(t, 201)
		put := func(key, value string) {
			t.Helper()
			d.do(mail, http.MethodPut, "/v1/kv/ks/keys/"+escape(key), value).want(t, 200)
		}
		for dir := range 7 {
			for i := range 5 {
				put(fmt.Sprintf("order/%d/%d", dir, i), "v")
			}
		}
		plain := []string{"order/a", "order/\xff\x00b", "order0", "a"}
		for _, key := range plain {
			put(key, "0123456789")
		}
		put("order/\xff\xff/x", "v")
		wantDirs := []string{"order/0/", "order/1/", "order/2/", "order/3/", "order/4/", "order/5/", "order/6/", "order/\xff\xff/"}
		wantKeys := []string{"order/a", "order/\xff\x00b"}
		for _, order := range []string{"asc", "desc"} {
			for _, limit := range []string{"1", "2", "3", "100"} {
				got := d.allKeysOf(url.Values{"prefix": {"order/"}, "delimiter": {"/"}, "order": {order}, "limit": {limit}})
				if order == "desc" {
					slices.Reverse(got.keys)
					slices.Reverse(got.prefixes)
				}
				if !slices.Equal(got.prefixes, wantDirs) || !slices.Equal(got.keys, wantKeys) {
					t.Errorf("%d partitions, %s by %s: %q and %q", partitions, order, limit, got.prefixes, got.keys)
				}
				all := d.allKeysOf(url.Values{"order": {order}, "limit": {limit}})
				if order == "desc" {
					slices.Reverse(all.keys)
				}
				if len(all.keys) != 40 || !slices.IsSorted(all.keys) || all.keys[0] != "a" || len(all.prefixes) != 0 {
					t.Errorf("%d partitions, %s by %s: %q", partitions, order, limit, all.keys)
				}
			}
		}
		if got := d.keysOf(url.Values{"delimiter": {"/"}, "from": {"b"}}); !slices.Equal(got.prefixes, []string{"order/"}) || !slices.Equal(got.keys, []string{"order0"}) {
			t.Errorf("from a key: %q and %q", got.prefixes, got.keys)
		}
		// Heads of values, with how long they are.
		got := d.keysOf(url.Values{"prefix": {"a"}, "head": {"4"}})
		if !slices.Equal(got.values, []string{"0123"}) || !slices.Equal(got.sizes, []int{10}) {
			t.Errorf("a head: %+v", got)
		}
		if got := d.keysOf(url.Values{"prefix": {"a"}, "keys_only": {"true"}}); !slices.Equal(got.values, []string{""}) || !slices.Equal(got.sizes, []int{10}) {
			t.Errorf("keys alone: %+v", got)
		}
		for query, field := range map[string]string{"head=0": "head", "head=65537": "head", "delimiter=": "delimiter", "order=up": "order", "delimiter=" + strings.Repeat("x", 65): "delimiter"} {
			if r := d.do(mail, http.MethodGet, "/v1/kv/ks?"+query, ""); r.status < 400 || r.status > 413 || !strings.Contains(string(r.body), `"`+field) {
				t.Errorf("%s: %d %s", query, r.status, r.body)
			}
		}
		// A keyspace of the same name that is made later is another one.
		page := d.keysOf(url.Values{"prefix": {"order/"}, "delimiter": {"/"}, "limit": {"1"}})
		d.do(mail, http.MethodDelete, "/v1/keyspaces/ks", "").want(t, 200)
		put("order/1/1", "v")
		d.do(mail, http.MethodGet, "/v1/kv/ks?prefix=order/&delimiter=/&cursor="+url.QueryEscape(page.cursor), "").want(t, 404)
	}
}

func TestKeyspacesAreListedWithTheirCounts(t *testing.T) {
	d := openDoorOf(t, 2, mail)
	d.do(mail, http.MethodPost, "/v1/namespace", `{"partitions": 3}`).want(t, 201)
	for i := range 12 {
		d.do(mail, http.MethodPut, fmt.Sprintf("/v1/kv/ks%d/keys/k%d", i%2, i), "v").want(t, 200)
	}
	list := func(query string) (out struct {
		Keyspaces []struct {
			Keyspace string
			Keys     uint64
			More     bool `json:"more_keys"`
		}
	},
	) {
		t.Helper()
		if err := json.Unmarshal(d.do(mail, http.MethodGet, "/v1/keyspaces"+query, "").want(t, 200).body, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	got := list("?stats=true")
	if len(got.Keyspaces) != 2 || got.Keyspaces[0].Keys != 6 || got.Keyspaces[1].Keys != 6 || got.Keyspaces[0].More {
		t.Errorf("with counts: %+v", got)
	}
	if got := list(""); len(got.Keyspaces) != 2 || got.Keyspaces[0].Keys != 0 {
		t.Errorf("without counts: %+v", got)
	}
}
