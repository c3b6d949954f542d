package index

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"

	"kerninst/agent/cfg"
	"kerninst/agent/isa"
	"kerninst/agent/ktext"
	"kerninst/agent/live"
)

// Source is what an index is made from.
type Source struct {
	Text  *ktext.Text
	Graph *cfg.Graph // of Text
	Live  *live.Live // of Graph
	// Dump is the SHA-256 of the dump that Text is of: it names the index.
	Dump [sha256.Size]byte
	// About is kept as it is.
	About []byte
	// Workers is how many goroutines decode; 1 if less.
	Workers int
}

// Make writes the index of a kernel: all that is known but addresses. The same
// source gives the same bytes.
func Make(s Source) ([]byte, error) {
	g := s.Graph
	if len(g.Regions) == 0 || g.Regions[0].Module != "" {
		return nil, errors.New("index: the graph does not begin with the kernel's text")
	}
	m := maker{Source: s, kernel: g.Regions[0]}
	m.blocks = int(g.At(cfg.Pos(len(m.kernel.Code)-1))) + 1
	if err := m.describe(); err != nil {
		return nil, err
	}
	var parts [tables][]byte
	parts[tableAbout] = s.About
	parts[tableFuncs] = m.funcTable()
	parts[tableBlocks] = m.blockTable()
	parts[tableEdges] = m.edgeTable()
	parts[tableMasks], parts[tableTexts] = m.maskTables()
	return m.file(parts)
}

// maker writes one index.
type maker struct {
	Source
	kernel cfg.Region
	blocks int // of the kernel: they are the first of the graph
	info   []Info
	list   []Func
}

// describe fills info.
func (m *maker) describe() error {
	sites, err := m.sites()
	if err != nil {
		return err
	}
	m.info = make([]Info, m.blocks)
	m.parallel(m.blocks, func(k int) {
		b := cfg.Block(k)
		lo, hi := m.Graph.Bounds(b)
		i := Info{Start: isa.Off(lo), Kind: m.Graph.Kind(b), Marks: m.Graph.Marks(b), Target: m.number(m.Graph.Target(b)), Out: m.Live.Out(b)}
		if i.holdsCode() {
			at := m.kernel.Addr + isa.Addr(lo)
			m.Graph.Insns(b, func(insn isa.Insn) {
				i.Odd = i.Odd || insn.Addr != at
				i.Site = sites[insn.Addr]
				at = insn.End()
			})
			i.Odd = i.Odd || at != m.kernel.Addr+isa.Addr(hi)
		}
		m.info[k] = i
	})
	return nil
}

// sites lists the instructions that the kernel rewrites while it runs.
func (m *maker) sites() (map[isa.Addr]bool, error) {
	links, err := m.Text.Links("")
	if err != nil {
		return nil, err
	}
	out := map[isa.Addr]bool{}
	for _, k := range links.Keys {
		out[k.Site] = true
	}
	for _, a := range links.Calls {
		out[a] = true
	}
	return out, nil
}

// parallel calls f with the numbers below n, from several goroutines.
func (m *maker) parallel(n int, f func(k int)) {
	var wg sync.WaitGroup
	workers := max(m.Workers, 1)
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for k := n * w / workers; k < n*(w+1)/workers; k++ {
				f(k)
			}
		}()
	}
	wg.Wait()
}

// image is where the kernel lies, its data included.
func image(t *ktext.Text) (lo, hi isa.Addr) {
	lo, hi = t.Bounds()
	if end, ok := t.Symbol("_end"); ok {
		hi = max(hi, end)
	}
	return lo, hi
}

func (m *maker) funcTable() []byte {
	m.list = m.functions()
	list := m.list
	lo, hi := image(m.Text)
	h := newHasher(m.Graph.Arch, lo, hi)
	m.parallel(len(list), func(k int) { list[k].Hash, list[k].Rebases = m.hash(&h, &list[k]), m.rebases(&list[k]) })
	out := make([]byte, 0, len(list)*funcWidth)
	for k := range list {
		out = list[k].append(out)
	}
	return out
}

// functions lists the kernel's, without their hashes.
func (m *maker) functions() []Func {
	g, end := m.Graph, cfg.Pos(len(m.kernel.Code))
	var list []Func
	for k, p := range g.Entries() {
		if p >= end {
			break
		}
		next := end
		if k+1 < len(g.Entries()) {
			next = min(end, g.Entries()[k+1])
		}
		first, last := g.FuncBlocks(k)
		last = min(last, cfg.Block(m.blocks)) // behind it fills up to the next region
		f := Func{
			Start: isa.Off(p), Size: isa.Off(next - p), First: Block(first), Blocks: int(last - first),
			Traced: g.Marks(first)&cfg.Traced != 0,
		}
		if f.Traced {
			f.Skip = min(isa.Off(m.Text.FtraceSite(m.kernel.Addr+isa.Addr(p), m.kernel.Code[p:next])), f.Size)
		}
		list = append(list, f)
	}
	return list
}

func (m *maker) hash(h *hasher, f *Func) uint64 {
	var list []isa.Insn
	sum := uint64(fnvStart)
	for b := f.First; b < f.First+Block(f.Blocks); b++ {
		if i := m.info[b]; i.holdsCode() {
			lo, hi := m.Graph.Bounds(cfg.Block(b))
			code := m.kernel.Code[lo:hi]
			list = decode(list[:0], h.arch, code, m.kernel.Addr+isa.Addr(lo))
			sum = h.block(sum, i, code, list, m.kernel.Addr+isa.Addr(f.Start+f.Skip))
		}
	}
	return sum
}

// rebases looks at all of a function's bytes, also at what seems to be no code.
func (m *maker) rebases(f *Func) bool {
	code := m.kernel.Code[f.Start : f.Start+f.Size]
	for k := 0; k < len(code); {
		i := m.Graph.Arch.Decode(code[k:], m.kernel.Addr+isa.Addr(f.Start)+isa.Addr(k))
		if k += i.Len; k <= len(code) && i.MayRebase() {
			return true
		}
	}
	return false
}

// number is a block's in the index; those of modules have none.
func (m *maker) number(b cfg.Block) Block {
	if b == cfg.NoBlock || int(b) >= m.blocks {
		return NoBlock
	}
	return Block(b)
}

func (m *maker) blockTable() []byte {
	out := make([]byte, 0, m.blocks*blockWidth)
	for k := range m.info {
		out = m.info[k].append(out)
	}
	return out
}

func (m *maker) edgeTable() []byte {
	var out []byte
	for _, e := range m.Graph.Edges() {
		if int(e.From) >= m.blocks {
			break
		}
		x := Edge{From: Block(e.From), To: m.number(e.To), Fault: e.Fault}
		if e.Fault {
			x.Live = m.Live.Fault(e)
		}
		out = x.append(out)
	}
	return out
}

// file puts header, sums and tables together.
func (m *maker) file(parts [tables][]byte) ([]byte, error) {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	parts[tableSums] = make([]byte, 4*((size+chunk-1)/chunk))
	h := header{Magic: magic, Source: m.Dump, Text: uint64(len(m.kernel.Code))}
	if copy(h.Arch[:], m.Graph.Arch.Name) != len(m.Graph.Arch.Name) {
		return nil, fmt.Errorf("index: the ISA's name %q is too long", m.Graph.Arch.Name)
	}
	out := make([]byte, headerSize, headerSize+len(parts[tableSums])+size)
	for k, p := range parts {
		h.Tables[k] = extent{uint64(len(out)), uint64(len(p) / widths[k])}
		out = append(out, p...)
	}
	if len(out) > maxSize {
		return nil, fmt.Errorf("index: %d bytes, more than %d", len(out), maxSize)
	}
	h.Size = uint64(len(out))
	body := headerSize + len(parts[tableSums])
	sum(out[headerSize:body], out[body:])
	h.Sums = crc32.Checksum(out[headerSize:body], crcTable)
	copy(out, h.encode())
	return out, nil
}

// sum fills in the sums of what lies behind them.
func sum(sums, body []byte) {
	for c := 0; c*chunk < len(body); c++ {
		order.PutUint32(sums[4*c:], crc32.Checksum(body[c*chunk:min((c+1)*chunk, len(body))], crcTable))
	}
}
