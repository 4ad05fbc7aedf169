# attack: leave a child that holds standard output open; the answer must not wait for its end
# must end: completed
# limits: wall=3s
# state: preserved
# then: survivor == 60
import subprocess
survivor = 60
child = subprocess.Popen(["sleep", "471147"], start_new_session=True)
print("held")
