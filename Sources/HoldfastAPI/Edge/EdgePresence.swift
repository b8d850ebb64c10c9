import Definitions
import HTTPServer
import HoldfastCore
import JSON
import Storage

/// Checks that the copy of an edge belongs to this store and to its current generation.
///
/// A generation has a number, the epoch. A generation ends when the store goes back in time, for example because an
/// older backup was restored. The store notices this when an edge sends a cursor or a version that the store lacks.
/// Then a new generation begins, and all edges must copy everything again.
struct EdgePresence {
    let catalog: ProjectCatalog

    /// Checks the cursor of the feed up to which an edge has copied changes.
    ///
    /// - Throws: 410 if the edge must copy everything again.
    func check(cursor: FeedCursor, _ reader: FeedReader, _ call: Call) async throws {
        let isAhead = try await reader.isAhead(cursor)
        try await check(epoch: cursor.epoch, isAhead: isAhead, call)
    }

    /// Checks the epoch that an edge follows.
    ///
    /// - Parameter isAhead: whether the edge has a change of this epoch that the store lacks.
    /// - Throws: 410 if the edge must copy everything again.
    func check(epoch: Int64, isAhead: Bool, _ call: Call) async throws {
        let author = Author(name: call.admission.token?.name ?? Author.anonymousName)
        guard try await !catalog.isPresent(epoch, isAhead: isAhead, by: author) else { return }
        throw Problem(
            .gone, "the edge must follow the present generation of this store; it follows another: copy everything anew"
        )
    }

    /// Checks the member `generation` of a request: the epoch that the edge follows, in hexadecimal. A request without
    /// it is accepted.
    ///
    /// - Throws: 400 if the member is malformed; 410 if the edge must copy everything again.
    func checkGeneration(of body: JSONObject, _ call: Call) async throws {
        guard let text = try body.optionalText("generation") else { return }
        guard let epoch = Int64(text, radix: 16), epoch > 0 else {
            throw CoreError(
                .invalid, "`generation` must be the first part of a cursor; got '\(text.shortened(to: 64))'",
                at: ["generation"])
        }
        try await check(epoch: epoch, isAhead: false, call)
    }
}
