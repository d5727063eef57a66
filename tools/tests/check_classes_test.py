"""What tools/check_classes.py takes for a method, and for a class with too many."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import check_classes  # noqa: E402

NO_METHODS = """
  Thing() = default;
  Thing(const Thing&) = delete;
  Thing& operator=(const Thing&) = delete;
  bool operator==(const Thing&) const = default;
  explicit Thing(int size) : size_(size), all_{f(1), g(2)}, Base<A<int>>(size)... {}
  template <class T> requires Small<T> && (sizeof(T) < 8)
  Thing(T value) try : size_(value) { go(); } catch (...) { stop(); }
  virtual ~Thing();
  friend class Other;
  friend bool same(const Thing& a, const Thing& b) { return a.f() == b.f(); }
  template <class T> friend void show(const T& value);
  using Call = std::function<void(int)>;
  typedef void (*Old)(int);
  static_assert(sizeof(int) == 4, "f()");
  enum class Kind { A = f(1), B };
  struct stat info_;
  TRIREME_MEMBERS(void f();)
  TRIREME_MORE(int g(););
  std::function<void(std::pair<int, int> (*)(int))> call_ = [this](int one) { return f(one); };
  void (*handler_)(int) = nullptr;
  int (Thing::*member_)(int) const = &Thing::f;
  int (*table_[2])(int a);
  alignas(64) std::atomic<int> flag_{f(0)};
  decltype(f(1)) result_;
  std::array<int, (1 < 2)> two_;
  char text_[sizeof(int)] = "f() { ' }";
  char quote_ = '"', brace_ = '{';
  int many_ = 1'000 * f(2), bits_ : 3 = 1;
  int guarded_ TRIREME_GUARDED_BY(mutex_);
  // void f();  /* " */
  std::string_view name_ = "a";  // "f()"
  const char* raw_ = R"x(void f() { "} )x";
#if defined(A) && \\
    defined(B)
  int a_;
#else
  void f();
  void g();
#endif
  struct Inner { void f(); void g() { struct Local { void f(); }; } } inner_;
"""
METHODS = """
  void f();
  int g() const noexcept { return f(1) > 0 ? "}"[0] : '}'; }
  virtual int h(int (*call)(int), std::function<void()> then = [] { f(); }) = 0;
  static Thing make(const Thing& other, int size = f(2));
  [[nodiscard]] constexpr auto i() const& -> std::map<int, std::vector<int>>;
  TRIREME_INLINE std::pair<int, int> j() TRIREME_REQUIRES(mutex_) override;
  template <class T, template <class> class C = std::vector, int N = (3 > 2)> C<T> k(T&&... values);
  template <class T> void l() requires requires(T t) { t.f(); } || Big<T>;
  struct stat m(struct stat* from);
  void n(const Thing* thing) const;
  void n(A::B* thing);
  Thing& operator=(int);
  Thing& operator<<(int);
  auto operator<=>(int) const -> std::strong_ordering;
  void operator()(int) const;
  int operator[](int) const;
  Thing* operator->() const;
  operator std::span<const int>() const;
  explicit operator bool() const noexcept(noexcept(f())) { return true; }
  void* operator new(std::size_t);
"""


def methods(text):
    return {name: count for _, name, count in check_classes.Source(text).classes()}


class CheckClasses(unittest.TestCase):
    def violations(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                path = root / "trireme" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_classes.violations(root)[0]

    def test_what_is_no_method_is_not_counted(self):
        self.assertEqual(methods("struct Thing {" + NO_METHODS + "};"), {"Thing": 0, "Inner": 2, "Local": 1})

    def test_each_of_these_is_one_method(self):
        for line in METHODS.strip().split("\n"):
            self.assertEqual(methods("class Thing {" + line + "};"), {"Thing": 1}, line)

    def test_they_count_under_every_access_and_between_other_members(self):
        text = "class Thing {" + METHODS + "public:" + NO_METHODS + METHODS + "private:" + METHODS + "};"
        self.assertEqual(methods(text)["Thing"], 3 * len(METHODS.strip().split("\n")))

    def test_a_class_is_found_wherever_it_is_defined(self):
        for head, name in (("class Thing", "Thing"), ("struct alignas(64) Thing final : public Base<int>, A::B", "Thing"),
                           ("class [[nodiscard]] TRIREME_API Thing", "Thing"), ("union Thing", "Thing"),
                           ("template <class T> struct A::Thing<T*>", "A::Thing<T*>"),
                           ("static const struct", "a class without a name")):
            self.assertEqual(methods(f"namespace n {{ void g() {{ {head} {{ void f(); }} t; }} }}"), {name: 1}, head)
        self.assertEqual(methods("enum class Kind { A, B }; class Later; struct stat info{}; void f(struct stat* s) {}"
                                 "template <class T, class = void> void g() {}"), {})

    def test_the_twenty_sixth_is_refused(self):
        few = "".join(f"  int f{i}() {{ return {i}; }}\n" for i in range(25))
        self.assertEqual(self.violations({"net/a.h": f"class A {{\n{few}}};\nclass B {{\n{few}}};\n"}), [])
        (line,) = self.violations({"net/a.h": "\n// class A\nclass A {\n A();\n" + few + " private:\n  void g();\n};\n"})
        self.assertIn("trireme/net/a.h:3: A has 26 methods, and 25 are the most", line)

    def test_tests_may_have_more(self):
        many = "class A {" + "".join(f"int f{i}();" for i in range(26)) + "};"
        self.assertEqual(self.violations({"net/a_test.h": many, "net/a_test.cc": many, "testing/a.h": many}), [])
        self.assertEqual(len(self.violations({"net/a.cc": many})), 1)


if __name__ == "__main__":
    unittest.main()
