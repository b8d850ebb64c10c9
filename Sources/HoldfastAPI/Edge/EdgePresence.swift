import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// Checks that an edge's copy is of this store and its current generation.
///
/// A generation, which an epoch number names, lasts until the store goes back in time, for example because an older
/// backup was restored. The store notices that when an edge presents a cursor or a version that the store lacks. Then a
/// new generation begins, and all edges must copy everything again.
struct EdgePresence {
    let catalog: ProjectCatalog

    /// Checks the cursor of the feed up to which an edge has copied changes.
    ///
    /// - Throws: 410 if the edge must copy everything again.
    func expect(_ cursor: FeedCursor, _ reader: FeedReader, _ call: Call) async throws {
        let isAhead = try await reader.isAhead(cursor)
        try await expect(cursor.epoch, isAhead: isAhead, call)
    }

    /// Checks the epoch that an edge follows.
    ///
    /// - Parameter isAhead: whether the edge has seen something of this epoch that the store lacks.
    /// - Throws: 410 if the edge must copy everything again.
    func expect(_ epoch: Int64, isAhead: Bool, _ call: Call) async throws {
        let author = Author(name: call.admission.token?.name ?? Author.anonymousName)
        guard try await !catalog.isPresent(epoch, isAhead: isAhead, by: author) else { return }
        throw Problem(
            .gone, "the edge must follow the present generation of this store; it follows another: copy everything anew"
        )
    }

    /// Checks the `generation` of a request: the epoch that the edge follows, in hexadecimal.
    ///
    /// - Throws: 410 if the edge must copy everything again.
    func expect(_ object: JSONObject, _ call: Call) async throws {
        guard let text = try object.optionalText("generation") else { return }
        guard let epoch = Int64(text, radix: 16), epoch > 0 else {
            throw CoreError(
                .invalid, "`generation` must be the first part of a cursor; got '\(text.shortened(to: 64))'",
                at: ["generation"])
        }
        try await expect(epoch, isAhead: false, call)
    }
}
