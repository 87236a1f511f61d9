// Package gitobj keeps the objects of git repositories: pack files on this node's disk, outside of the log and the store.
//
// A push's pack is checked by git in a directory of its own (incoming), made durable (staged) and, once the entry that
// names it is applied, linked to where fetches look (objects/pack). Which packs a repository has is said by its manifest,
// which is state behind the log and comes from the Manifests that the caller gives; nothing on disk is read back as state.
// Objects are looked up in process; git itself runs only to take a pack in, to check that nothing is missing, to send
// objects, and always through env.Exec: with fixed arguments, an environment made here, and limits. DESIGN.md has the
// layout and its rules.
//
// Promised: a pack that Keep returned is durable; no file that a manifest names is ever removed while its repository
// exists; damaged packs are refused, never read past. Elsewhere: refs (machine/refs), the protocol (githttp).
package gitobj
