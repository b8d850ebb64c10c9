import Bucketing
import HTTPServer
import Storage

/// The lines of an export, read from the store page by page while they are sent. Each page is a read of its own, so
/// that a slow client holds no snapshot of the store; the export is consistent for each user, not as a whole.
final class ProfileExport: ResponseStream {
    private let reader: any ProfileReader
    private var pageSize: PageSize
    private let detail: Bool
    private var after: Identifier?
    private var remaining: Int

    init(reader: any ProfileReader, after: Identifier?, limit: Int, page: Int, detail: Bool) {
        self.reader = reader
        self.after = after
        pageSize = PageSize(atMost: page)
        self.detail = detail
        remaining = limit
    }

    func produce(_ writer: StreamWriter) {
        guard remaining > 0 else { return writer.finish() }
        reader.profiles(after: after, limit: min(pageSize.rows, remaining)) { [self] result in
            switch result {
            case .success(let page):
                after = page.end
                remaining = page.end == nil ? 0 : remaining - page.profiles.count
                let lines = lines(page.profiles)
                pageSize.adjust(to: lines.count)
                writer.write(lines)
            case .failure(let error):
                writer.fail(Problem(error).response)
            }
        }
    }

    private func lines(_ profiles: [(userID: Identifier, profile: ProfileRecord)]) -> [UInt8] {
        var bytes: [UInt8] = []
        for (userID, profile) in profiles { bytes += ProfileLine.encode(userID, profile, detail: detail) }
        return bytes
    }
}
