package qemu

import "encoding/binary"

// The parts of an empty qcow2 file of version 3 (docs/interop/qcow2.txt in QEMU), each a cluster:
// its header, the table of the blocks of reference counts, the first of these, and the table of
// the tables of clusters.
const (
	qcow2ClusterBits = 16
	qcow2Cluster     = 1 << qcow2ClusterBits
	qcow2Magic       = "QFI\xfb"
	qcow2Header      = 104 // bytes, without what is optional
	// qcow2Table is how many bytes one table of clusters is for: an entry has 8 bytes.
	qcow2Table = qcow2Cluster / 8 * qcow2Cluster
)

// emptyQcow2 is a qcow2 file of a disk of at least that many bytes on which nothing was written. In
// place of what was not is what lies below it.
func emptyQcow2(size int64) []byte {
	const parts = 4
	tables := (size + qcow2Table - 1) / qcow2Table
	file := make([]byte, parts*qcow2Cluster)
	copy(file, qcow2Magic)
	be := binary.BigEndian
	be.PutUint32(file[4:], 3) // version
	be.PutUint32(file[20:], qcow2ClusterBits)
	be.PutUint64(file[24:], uint64(tables*qcow2Table))
	be.PutUint32(file[36:], uint32(tables))
	be.PutUint64(file[40:], 3*qcow2Cluster) // the table of tables
	be.PutUint64(file[48:], qcow2Cluster)   // the table of reference counts
	be.PutUint32(file[56:], 1)              // its size, in clusters
	be.PutUint32(file[96:], 4)              // bits of a reference count, as a power of two
	be.PutUint32(file[100:], qcow2Header)
	be.PutUint64(file[qcow2Cluster:], 2*qcow2Cluster)
	for part := range parts {
		be.PutUint16(file[2*qcow2Cluster+2*part:], 1)
	}
	return file
}
