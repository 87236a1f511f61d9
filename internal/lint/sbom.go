package lint

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// bom is a bill of materials in the form of CycloneDX 1.6 (ECMA-424). It has no serial number and no time: the same modules
// give the same bytes.
type bom struct {
	// Format is CycloneDX.
	Format string `json:"bomFormat"`
	// SpecVersion is the version of CycloneDX.
	SpecVersion string `json:"specVersion"`
	// Version is that of the document, which is made once for a release.
	Version int `json:"version"`
	// Metadata names the program itself.
	Metadata bomMetadata `json:"metadata"`
	// Components are the linked modules, in the order of their paths.
	Components []bomComponent `json:"components"`
	// Dependencies has an entry for each module, the program's own too.
	Dependencies []bomNeeds `json:"dependencies"`
}

// bomMetadata says what the bill is of.
type bomMetadata struct {
	Component bomComponent `json:"component"`
}

// bomComponent is one module, as a program or as a library.
type bomComponent struct {
	// Ref is what dependencies call it: its path and version with an @ between.
	Ref string `json:"bom-ref"`
	// Type is application or library.
	Type string `json:"type"`
	// Name is the path of the module.
	Name string `json:"name"`
	// Version is empty for the program.
	Version string `json:"version,omitempty"`
	// PURL is its package URL.
	PURL string `json:"purl"`
	// Hashes is empty for the program, which go.sum does not list.
	Hashes []bomHash `json:"hashes,omitempty"`
	// Licenses has one entry, of one license or of an expression.
	Licenses []bomLicense `json:"licenses"`
}

// bomHash is the sum of go.sum in hexadecimal: a SHA-256 over the names and sums of a module's files.
type bomHash struct {
	// Algorithm is SHA-256.
	Algorithm string `json:"alg"`
	// Content is the sum in hexadecimal.
	Content string `json:"content"`
}

// bomLicense names one license, or, as the only one of a component, an expression of several.
type bomLicense struct {
	// License is set for one license, Expression for several.
	License    *bomLicenseID `json:"license,omitempty"`
	Expression string        `json:"expression,omitempty"`
}

// bomLicenseID is a license by its identifier of SPDX.
type bomLicenseID struct {
	// ID is the identifier of SPDX.
	ID string `json:"id"`
}

// bomNeeds lists which components' packages are imported by a component's.
type bomNeeds struct {
	// Ref is the component.
	Ref string `json:"ref"`
	// Needs are the components whose packages it imports.
	Needs []string `json:"dependsOn,omitempty"`
}

// billOfMaterials writes what the program is made of: the modules that it links. The standard library is left out: which
// one is linked depends on the toolchain, and `go version` tells it of a binary.
func billOfMaterials(modules []linked) ([]byte, error) {
	b := bom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1}
	// refs are the references by path. The program has no version, so its own is the path alone.
	refs := make(map[string]string, len(modules))
	for _, m := range modules {
		refs[m.path] = strings.TrimSuffix(m.path+"@"+m.version, "@")
	}
	for _, m := range modules {
		c := bomComponent{Ref: refs[m.path], Type: "library", Name: m.path, Version: m.version, PURL: purl(m)}
		// needs are references, since the bill names components by them.
		needs := make([]string, len(m.needs))
		for i, n := range m.needs {
			needs[i] = refs[n]
		}
		b.Dependencies = append(b.Dependencies, bomNeeds{c.Ref, needs})
		if m.version == "" {
			c.Type, c.Licenses = "application", licensed([]string{"Apache-2.0"})
			b.Metadata.Component = c
			continue
		}
		// go.sum says with h1: that the sum is a SHA-256.
		sum, ok := strings.CutPrefix(m.sum, "h1:")
		raw, err := base64.StdEncoding.DecodeString(sum)
		if err != nil || !ok {
			return nil, fmt.Errorf("%s %s has no sum in go.sum", m.path, m.version)
		}
		c.Hashes = []bomHash{{"SHA-256", hex.EncodeToString(raw)}}
		c.Licenses = licensed(m.licenses())
		b.Components = append(b.Components, c)
	}
	out, err := json.MarshalIndent(b, "", "  ")
	return append(out, '\n'), err
}

// purl is the package URL of a module, with the path in lower case: https://github.com/package-url/purl-spec.
func purl(m linked) string {
	at := "pkg:golang/" + strings.ToLower(m.path)
	if m.version == "" {
		return at
	}
	return at + "@" + strings.ReplaceAll(m.version, "+", "%2B")
}

// licensed returns the entry for the licenses of a module: more than one are joined to an expression, since all hold.
func licensed(ids []string) []bomLicense {
	if len(ids) == 1 {
		return []bomLicense{{License: &bomLicenseID{ids[0]}}}
	}
	return []bomLicense{{Expression: strings.Join(ids, " AND ")}}
}
