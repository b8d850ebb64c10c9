import Bucketing

/// Estimates of the memory that changes take while they wait for their commit, in bytes. Stores limit the sum; see
/// ``StoreSettings/waitingBytes``.
package enum WaitingBytes {
    /// A change without its content: closures, results, and an element of the queue.
    package static let ofChange = 512
    /// The overhead of a text, in addition to its bytes: an element of an array or dictionary, and the string's
    /// storage.
    private static let ofText = 64

    fileprivate static func of(_ texts: Identifier...) -> Int {
        texts.reduce(0) { bytes, text in bytes + ofText + text.string.utf8.count }
    }

    fileprivate static func of(_ map: ExperimentBucketMap) -> Int {
        map.entries.reduce(0) { $0 + of($1.experimentID, $1.variationID) }
    }
}

extension ProfileChange {
    package var waitingBytes: Int {
        let content =
            switch operation {
            case .replace(let map), .save(let map, _): WaitingBytes.of(map)
            case .restore(let assignments, let map, _):
                // Twice, because an override may have an underlying assignment.
                assignments.reduce(WaitingBytes.of(map)) { bytes, entry in
                    bytes + 2 * WaitingBytes.of(entry.key, entry.value.variationID)
                        + (entry.value.layer?.reason?.utf8.count ?? 0)
                }
            case .assign(let candidates, _, _):
                candidates.reduce(0) { $0 + WaitingBytes.of($1.experimentID, $1.variationID) }
            case .override, .remove, .erase, .eraseKeepingTotals: 0
            }
        return WaitingBytes.ofChange + content
    }
}

extension AttributeChange {
    package var waitingBytes: Int {
        guard case .update(let updates) = operation else { return WaitingBytes.ofChange }
        return updates.values.reduce(WaitingBytes.ofChange) { bytes, update in
            guard case .set(let value) = update else { return bytes + WaitingBytes.of("") }
            return switch value {
            case .bool, .number: bytes + WaitingBytes.of("")
            case .text(let text), .moment(let text): bytes + WaitingBytes.of(text)
            case .selection(let texts): texts.reduce(bytes) { $0 + WaitingBytes.of($1) }
            }
        }
    }
}

extension StickyDocumentChange {
    package var waitingBytes: Int {
        let added = assignments.reduce(WaitingBytes.ofChange) { $0 + WaitingBytes.of($1.key, $1.value) }
        return removed.reduce(added) { $0 + WaitingBytes.of($1) }
    }
}

extension ReceivedEvent {
    package var waitingBytes: Int {
        switch event {
        case .exposure(let exposure): WaitingBytes.ofChange + exposure.payload.count
        case .goal(let event): WaitingBytes.ofChange + event.payload.count
        }
    }
}
