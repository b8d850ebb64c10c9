/// Deadlines of connections, the nearest first: a binary heap. A connection whose deadline moves further away keeps
/// its entry, and is looked at again when that comes up; so a request on a living connection costs nothing here.
struct DeadlineQueue {
    struct Entry {
        /// Monotonic nanoseconds.
        let time: UInt64
        let token: UInt64
    }

    private var heap: [Entry] = []

    var next: UInt64? { heap.first?.time }

    mutating func insert(_ entry: Entry) {
        heap.append(entry)
        var child = heap.count - 1
        while child > 0 {
            let parent = (child - 1) / 2
            guard heap[child].time < heap[parent].time else { break }
            heap.swapAt(child, parent)
            child = parent
        }
    }

    /// Takes out the nearest deadline if it is not after `now`.
    mutating func popExpired(now: UInt64) -> Entry? {
        guard let first = heap.first, first.time <= now else { return nil }
        let last = heap.removeLast()
        guard !heap.isEmpty else { return first }
        heap[0] = last
        var parent = 0
        while true {
            var least = parent
            for child in [2 * parent + 1, 2 * parent + 2]
            where child < heap.count && heap[child].time < heap[least].time {
                least = child
            }
            if least == parent { return first }
            heap.swapAt(parent, least)
            parent = least
        }
    }
}
