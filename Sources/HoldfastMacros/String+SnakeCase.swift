extension String {
    /// `buttonTitle` as `button_title`, `showsURLBar` as `shows_url_bar`, `step2Title` as `step2_title`.
    var snakeCased: String {
        let letters = Array(self)
        var result = ""
        for (index, letter) in letters.enumerated() {
            if letter.isUppercase, index > 0 {
                let follows = !letters[index - 1].isUppercase && letters[index - 1] != "_"
                let leads = letters[index - 1].isUppercase && index + 1 < letters.count && letters[index + 1].isLowercase
                if follows || leads { result.append("_") }
            }
            result.append(contentsOf: letter.lowercased())
        }
        return result
    }
}
