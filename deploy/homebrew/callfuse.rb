# A formula for a tap: brew install --HEAD callfuse. It builds the newest sources until there is a release to name.
class Callfuse < Formula
  desc "Catches tool-call loops of AI agents inside live LLM streams"
  homepage "https://github.com/callfuse/callfuse"
  license "MIT"
  head "https://github.com/callfuse/callfuse.git", branch: "main"

  depends_on "python@3.13"

  def install
    system Formula["python@3.13"].opt_bin/"python3.13", "-m", "venv", libexec
    system libexec/"bin/python", "-m", "pip", "install", "#{buildpath}[serve]"
    bin.install_symlink libexec/"bin/callfuse"
  end

  service do
    run [opt_bin/"callfuse", "serve", "--config", etc/"callfuse.yaml"]
    keep_alive true
    log_path var/"log/callfuse.log"
    error_log_path var/"log/callfuse.log"
  end

  test do
    system bin/"callfuse", "--version"
    (testpath/"callfuse.yaml").write "version: 1\ntool_call_loop: {mode: observe}\n"
    system bin/"callfuse", "config", "check", "callfuse.yaml"
    assert_match "Limits and settings", shell_output("#{bin}/callfuse explain repeat")
  end
end
