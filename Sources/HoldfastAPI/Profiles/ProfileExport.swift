import Bucketing
import HTTPServer
import Storage

/// The lines of an export, read from the store page by page while they are sent. Each page is a read of its own, so
/// that a slow client holds no snapshot of the store; the export is consistent for each user, not as a whole.
final class ProfileExport: ResponseStream {
    private let reader: any ProfileReader
    /// Profiles that are read at the most, and next.
    private let largestPage: Int
    private var page: Int
    private let detail: Bool
    private var after: Identifier?
    private var remaining: Int

    init(reader: any ProfileReader, after: Identifier?, limit: Int, page: Int, detail: Bool) {
        self.reader = reader
        self.after = after
        largestPage = page
        self.page = min(page, 16)
        self.detail = detail
        remaining = limit
    }

    func produce(_ writer: StreamWriter) {
        guard remaining > 0 else { return writer.finish() }
        reader.profiles(after: after, limit: min(page, remaining)) { [self] result in
            switch result {
            case .success(let page):
                after = page.end
                remaining = page.end == nil ? 0 : remaining - page.profiles.count
                let lines = lines(page.profiles)
                adjustPage(to: lines.count)
                writer.write(lines)
            case .failure:
                writer.abort()
            }
        }
    }

    /// So many profiles are read at once as make a piece of about this many bytes.
    private static let pieceLength = 128 * 1024

    private func adjustPage(to length: Int) {
        if length > Self.pieceLength { page = max(1, page / 2) }
        if length < Self.pieceLength / 2 { page = min(largestPage, page * 2) }
    }

    private func lines(_ profiles: [(userID: Identifier, profile: ProfileRecord)]) -> [UInt8] {
        var bytes: [UInt8] = []
        for (userID, profile) in profiles { bytes += ProfileLine.encode(userID, profile, detail: detail) }
        return bytes
    }
}
