package lint

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write NOTICE and gen/sbom")

// TestTheNoticeAndTheBillOfMaterialsNameWhatIsLinked asks the go command, whose reads a cached result does not see: run it
// with -count=1.
func TestTheNoticeAndTheBillOfMaterialsNameWhatIsLinked(t *testing.T) {
	modules, err := linkedModules(root, "./cmd/millrace", platforms())
	if err != nil {
		t.Fatal(err)
	}
	said, err := notice(modules)
	if err != nil {
		t.Fatal(err)
	}
	bill, err := billOfMaterials(modules)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"NOTICE": said, "gen/sbom/millrace.cdx.json": string(bill)} {
		file := filepath.Join(root, name)
		if *update {
			if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(want), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s is not what go.mod and the modules say (%v): run make generate", name, err)
		}
	}
	i := slices.IndexFunc(modules, func(m linked) bool { return m.path == "golang.org/x/sys" })
	if i < 0 {
		t.Fatal("golang.org/x/sys is not linked: NOTICE must name another text for the standard library")
	}
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(goroot)), "LICENSE"))
	if err == nil && string(own) != modules[i].texts[0].body { // a system's package may have it elsewhere
		t.Error("the license of Go is not that of golang.org/x/sys")
	}
}

const linkedModule = `
-- go.mod --
module example.com/m

go 1.26

require (
	example.com/a v1.0.0
	example.com/b v0.0.0-20260101000000-000000000000
	example.com/unused v1.0.0
)

replace (
	example.com/a => ./a
	example.com/b => ./b
	example.com/unused => ./unused
)
-- go.sum --
example.com/a v1.0.0 h1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=
example.com/a v1.0.0/go.mod h1:AAAA
example.com/b v0.0.0-20260101000000-000000000000 h1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=
-- main.go --
package main

import _ "example.com/a/in"

func main() {}
-- main_darwin.go --
package main

import _ "example.com/b"
-- a/go.mod --
module example.com/a
-- a/LICENSE --
Copyright (c) 2020 A. Author

Permission is hereby granted, free of charge, to any person obtaining a
copy of this software
-- a/in/in.go --
package in

import _ "example.com/b"
-- a/in/NOTICE.txt --
Parts are of somebody else.
(c) 2019, Somebody Else
-- a/in/license.go --
package in
-- a/out/LICENSE --
Not linked.
-- b/go.mod --
module example.com/b
-- b/b.go --
package b
-- b/License.md --
Redistribution and use in source and binary forms, with or without
modification, are permitted provided that ...
-- unused/go.mod --
module example.com/unused
-- unused/unused.go --
package unused
`

func TestLinkedModulesCarryTheTextsThatHoldForThem(t *testing.T) {
	modules, err := linkedModules(plantModule(t, linkedModule), ".", []platform{{"linux", "amd64", "0"}, {"darwin", "arm64", "0"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range modules {
		for _, text := range m.texts {
			got = append(got, m.path+"/"+text.name)
		}
		got = append(got, m.path+" needs "+strings.Join(m.needs, ","))
	}
	want := []string{
		"example.com/a/LICENSE", "example.com/a/in/NOTICE.txt", "example.com/a needs example.com/b",
		"example.com/b/License.md", "example.com/b needs ", "example.com/m needs example.com/a,example.com/b",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	said, err := notice(modules)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"example.com/a v1.0.0\n    License: MIT\n    Copyright (c) 2020 A. Author\n    (c) 2019, Somebody Else\n    LICENSE: text 1\n    in/NOTICE.txt: text 2\n",
		"example.com/b v0.0.0-20260101000000-000000000000\n    License: BSD-2-Clause\n    License.md: text 3\n",
		"Text 2\n" + rule + "\nParts are of somebody else.\n",
	} {
		if !strings.Contains(said, part) {
			t.Errorf("%q is not in %s", part, said)
		}
	}
	bill, err := billOfMaterials(modules)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"bom-ref": "example.com/m",`, `"content": "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"`,
		`"purl": "pkg:golang/example.com/b@v0.0.0-20260101000000-000000000000"`, `"id": "BSD-2-Clause"`,
	} {
		if strings.Count(string(bill), part) == 0 {
			t.Errorf("%q is not in %s", part, bill)
		}
	}
}

func TestAModuleWithoutALicenseThatMayBeShippedIsRefused(t *testing.T) {
	for _, body := range []string{"", "All rights reserved.", "GNU GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007", "Mozilla Public License Version 2.0"} {
		m := linked{path: "example.com/a", version: "v1.0.0", texts: []text{{"LICENSE", body}}}
		if _, err := notice([]linked{m}); err == nil {
			t.Errorf("%q was accepted", body)
		}
	}
	if _, err := billOfMaterials([]linked{{path: "example.com/a", version: "v1.0.0"}}); err == nil {
		t.Error("a module without a sum was accepted")
	}
}
