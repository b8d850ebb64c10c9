import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// Checks that an edge follows this store and its current generation. If the edge has seen something that the store
/// lacks, the store has gone back in time.
struct EdgePresence {
    let catalog: ProjectCatalog

    /// - Throws: 410 if the edge must copy everything again.
    func expect(_ cursor: FeedCursor, _ reader: FeedReader, _ call: Call) async throws {
        let isAhead = try await reader.isAhead(cursor)
        try await expect(cursor.epoch, isAhead: isAhead, call)
    }

    /// - Parameter isAhead: whether the edge has seen something of this epoch that the store lacks.
    func expect(_ epoch: Int64, isAhead: Bool, _ call: Call) async throws {
        let author = Author(name: call.admission.token?.name ?? Author.anonymousName)
        guard try await !catalog.isPresent(epoch, isAhead: isAhead, by: author) else { return }
        throw Problem(
            .gone, "the edge must follow the present generation of this store; it follows another: copy everything anew"
        )
    }

    /// Checks the `generation` of a request: the epoch that the edge follows.
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
